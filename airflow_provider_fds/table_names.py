"""Names of tables in a catalog, as text: ``main.sales.orders``; a part with other characters is in backticks.

Standard library only, Python 3.9 syntax: sinks, which the Spark driver has too, check names by it.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from airflow_provider_fds.credentials import redacted_uri

#: A part that needs no backticks, as Spark's parser has it (``IDENTIFIER``), and with letters of any language.
_PLAIN = re.compile(r"[\w-]+")
#: A part in backticks; a backtick in it is doubled.
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: The most characters of a part that a catalog accepts (Unity Catalog 255, Glue 255, Hive 128 or 256).
_MOST_CHARS = 255
#: What stands for a table that only its catalog can find, as a scheme stands for a store.
_SCHEME = "catalog://"


def name_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a name without backticks, the table last. How many a catalog needs is for the catalog.

    Raises:
        ValueError: ``text`` is a URI or a path, or a part is empty, too long, or lacks a backtick.

    >>> name_parts("main.`my.sales`.orders")
    ('main', 'my.sales', 'orders')
    """
    text = text.strip()
    if "://" in text or text.startswith(("/", "./", "../", "~")):
        raise ValueError(
            f"{redacted_uri(text)!r} is a path, and a catalog has names such as 'sales.orders'. Give the name, or "
            "omit the catalog's connection (catalog_conn_id)"
        )
    parts: list[str] = []
    at = 0
    while True:
        found = _QUOTED.match(text, at) or _PLAIN.match(text, at)
        if found is None:
            raise ValueError(
                f"{text!r} is not the name of a table: its part {len(parts) + 1} is empty, or has a character that "
                "needs backticks, as in main.`my sales`.orders"
            )
        part = found[1].replace("``", "`") if found[0].startswith("`") else found[0]
        if len(part) > _MOST_CHARS or _CONTROL.search(part):
            raise ValueError(
                f"{text[:100]!r} is not the name of a table: its part {len(parts) + 1} has more than {_MOST_CHARS} "
                "characters, or a control character"
            )
        parts.append(part)
        at = found.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            raise ValueError(
                f"{text!r} is not the name of a table: after its part {len(parts)} comes {text[at]!r} instead of a "
                "dot. A part with other characters needs backticks, as in main.`my sales`.orders"
            )
        at += 1


def joined(parts: tuple[str, ...]) -> str:
    """Return the name that has these parts.

    >>> joined(("main", "my.sales", "orders"))
    'main.`my.sales`.orders'
    """
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in parts)


def name_uri(conn_id: str, name: str) -> str:
    """Return a URI that stands for the table of a name before its catalog is asked: in assets and shared polls.

    Raises:
        ValueError: As :func:`name_parts`.

    >>> name_uri("unity", "main.sales.orders")
    'catalog://unity/main.sales.orders'
    """
    return f"{_SCHEME}{quote(conn_id, safe='')}/{quote(joined(name_parts(name)), safe='.`')}"


def is_name_uri(uri: str) -> bool:
    """Whether a URI stands for the table of a name, as that of :func:`name_uri`."""
    return uri.startswith(_SCHEME)
