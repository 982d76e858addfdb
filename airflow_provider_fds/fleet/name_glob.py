"""The name of a table in a catalog with ``*`` in its last part, and the names that it matches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.declaration.backfill_range import is_template

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The schema of a name, and its last part, which may be in backticks.
_LAST_PART: Final = re.compile(r"(?:(?P<schema>.*)\.)?(?P<last>`(?:[^`]|``)+`|[\w*-]+)", re.DOTALL)


class NameGlob:
    """The name of a table in a catalog, in whose last part ``*`` stands for any text. Catalogs ignore case.

    Args:
        pattern: The name.

    >>> NameGlob("main.sales.raw_*").parts_of("main.sales.raw_orders")
    {'schema': 'sales', 'table': 'raw_orders', '1': 'orders'}
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        found = _LAST_PART.fullmatch(pattern.strip())
        self._schema = "" if found is None else found["schema"] or ""
        last = "" if found is None else found["last"]
        self._glob = last[1:-1].replace("``", "`") if last.startswith("`") else last

    def problems(self) -> list[str]:
        """Return what is wrong with the pattern, one sentence each."""
        problem = self._problem()
        return [] if problem is None else [f"tables {self.pattern!r} {problem}."]

    def _problem(self) -> str | None:
        if is_template(self.pattern):
            return "is a template. Write the name with '*' for the tables to find"
        if not self._glob or not self._schema:
            return (
                "is not the name of tables in a catalog. Write main.sales.* for the tables of a schema, or omit "
                "catalog_conn_id for those in a folder"
            )
        if "*" in self._schema or "**" in self._glob:
            return "must have each '*' in its last part. Use one pattern for each schema"
        if "*" not in self._glob:
            return "has no '*'. Write main.sales.* for the tables of a schema, or declare a single table as a stream"
        try:
            TableName.parse(self._schema)
        except ConfigurationError as error:
            return f"has no schema: {error}"
        return None

    @property
    def schema(self) -> TableName:
        """The schema that has the tables."""
        return TableName.parse(self._schema)

    def sample(self) -> str:
        """Return the name of a table that the pattern matches."""
        return str(TableName((*self.schema.parts, self._glob.replace("*", "x"))))

    def parts_of(self, table: str) -> dict[str, str]:
        """Return the parts of a table's name: ``schema``, ``table``, and the text of each ``*`` from 1 on.

        Raises:
            ConfigurationError: The pattern does not match the name.
        """
        found = self._match(table)
        if found is None:
            raise ConfigurationError(f"{table!r} is not one of the tables {self.pattern!r}.")
        *_, schema, last = TableName.parse(table).parts
        return {"schema": schema, "table": last, **{str(n): text for n, text in enumerate(found.groups(), 1)}}

    def chooses(self, table: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
        """Whether a table that the pattern matches is one of ``include``, if there are any, and none of ``exclude``."""
        last = TableName.parse(table).parts[-1]

        def is_one_of(globs: Sequence[str]) -> bool:
            return any(_of_name(glob).fullmatch(last) is not None for glob in globs)

        return (not include or is_one_of(include)) and not is_one_of(exclude)

    def path_of(self, table: str) -> str | None:
        """Return what :meth:`chooses` compares of a table, or ``None`` if the pattern does not match it."""
        return TableName.parse(table).parts[-1] if self._match(table) is not None else None

    def _match(self, table: str) -> re.Match[str] | None:
        try:
            *schema, last = TableName.parse(table).parts
        except ConfigurationError:
            return None
        is_there = [part.casefold() for part in schema] == [part.casefold() for part in self.schema.parts]
        return _of_name(self._glob).fullmatch(last) if is_there else None


def _of_name(glob: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(map(re.escape, glob.split("*"))), re.DOTALL | re.IGNORECASE)
