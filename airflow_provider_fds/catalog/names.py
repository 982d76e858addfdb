"""Names of tables in a catalog as values; ``table_names.py`` has how they are written."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_fds import table_names
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason


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
        try:
            return cls(table_names.name_parts(text))
        except ValueError as error:
            raise _invalid(str(error)) from None

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
        return table_names.joined(self.parts)


def name_uri(conn_id: str, name: str) -> str:
    """Return :func:`.table_names.name_uri`, whose error here is a ``ConfigurationError``."""
    return table_names.name_uri(conn_id, str(TableName.parse(name)))


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(problem, reason=Reason.CATALOG_NAME_INVALID)
