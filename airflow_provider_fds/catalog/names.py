"""Names of tables in a catalog: ``main.sales.orders``; a part with other characters is in backticks, as in Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from airflow_provider_fds.credentials import redacted_uri
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

#: A part that needs no backticks, as Spark's parser has it (``IDENTIFIER``), and with letters of any language.
_PLAIN: Final = re.compile(r"[\w-]+")
#: A part in backticks; a backtick in it is doubled.
_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: The most characters of a part that a catalog accepts (Unity Catalog 255, Glue 255, Hive 128 or 256).
_MOST_CHARS: Final = 255


@dataclass(frozen=True)
class TableName:
    """The name of a table in a catalog.

    Attributes:
        parts: Its parts without backticks, the table last.

    >>> str(TableName.parse("main.`my.sales`.orders"))
    'main.`my.sales`.orders'
    """

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read a name. Whether it has as many parts as its catalog needs is for :meth:`expect`.

        Raises:
            ConfigurationError: ``text`` is a URI or a path, or a part is empty, too long, or lacks a backtick.
        """
        text = text.strip()
        if "://" in text or text.startswith(("/", "./", "../", "~")):
            raise _invalid(
                f"{redacted_uri(text)!r} is a path, and a catalog has names such as 'sales.orders'. Give the name, or "
                "omit the catalog's connection (catalog_conn_id)"
            )
        parts: list[str] = []
        at = 0
        while True:
            found = _QUOTED.match(text, at) or _PLAIN.match(text, at)
            if found is None:
                raise _invalid(
                    f"{text!r} is not the name of a table: its part {len(parts) + 1} is empty, or has a character that "
                    "needs backticks, as in main.`my sales`.orders"
                )
            part = found[1].replace("``", "`") if found[0].startswith("`") else found[0]
            if len(part) > _MOST_CHARS or _CONTROL.search(part):
                raise _invalid(
                    f"{text[:100]!r} is not the name of a table: its part {len(parts) + 1} has more than {_MOST_CHARS} "
                    "characters, or a control character"
                )
            parts.append(part)
            at = found.end()
            if at == len(text):
                return cls(tuple(parts))
            if text[at] != ".":
                raise _invalid(
                    f"{text!r} is not the name of a table: after its part {len(parts)} comes {text[at]!r} instead of a "
                    "dot. A part with other characters needs backticks, as in main.`my sales`.orders"
                )
            at += 1

    def expect(self, *kinds: str) -> TableName:
        """Return the name if it has a part for each of ``kinds``, such as ``"catalog", "schema", "table"``.

        Raises:
            ConfigurationError: It has fewer or more.
        """
        if len(self.parts) != len(kinds):
            raise _invalid(
                f"{str(self)!r} has {len(self.parts)} part{'' if len(self.parts) == 1 else 's'}, and this catalog has "
                f"names of {len(kinds)}: {'.'.join(f'<{kind}>' for kind in kinds)}"
            )
        return self

    def __str__(self) -> str:
        return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in self.parts)


def name_uri(conn_id: str, name: str) -> str:
    """Return a URI that stands for the table of a name before its catalog is asked: in assets and shared polls.

    Raises:
        ConfigurationError: As :meth:`TableName.parse`.

    >>> name_uri("unity", "main.sales.orders")
    'catalog://unity/main.sales.orders'
    """
    return f"catalog://{quote(conn_id, safe='')}/{quote(str(TableName.parse(name)), safe='.`')}"


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(problem, reason=Reason.CATALOG_NAME_INVALID)


__all__ = ["TableName", "name_uri"]
