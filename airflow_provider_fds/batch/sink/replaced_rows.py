"""Which rows a run of a data interval replaces, and whether another stream may have written some of them.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.batch.sink.loaded_streams import LoadedStream, Piece


@dataclass(frozen=True)
class ReplacedRows:
    """The rows that a run may replace, by the declaration of the sink.

    Attributes:
        table_id: ``metaData.id`` of the run's source.
        values: Columns, in lower case, with the value that they have in each of the rows.
        versions: Versions of their source, both inclusive; ``None``: any.
    """

    table_id: str
    values: dict[str, Any]
    versions: tuple[int, int] | None

    def of_others(self, others: Iterable[LoadedStream]) -> tuple[str, Piece] | None:
        """Return the name of a stream, and what it has loaded of which some rows may be replaced; ``None`` if none are.

        Args:
            others: What other streams have loaded into the sink.
        """
        for other in others:
            for piece in other.pieces:
                if not self._leaves(other, piece):
                    return other.name, piece
        return None

    def _leaves(self, other: LoadedStream, piece: Piece) -> bool:
        """Whether all rows of a piece are certainly left."""
        if any(name in self.values and _differ(self.values[name], value) for name, value in other.same_values):
            return True
        if self.versions is not None and self.versions[1] < self.versions[0]:
            return True
        if self.versions is None or piece.table_id != self.table_id:
            # two tables have the same version numbers
            return False
        first, last = piece.versions
        return last < self.versions[0] or self.versions[1] < first


def describe_replaced(what: str, path: str, found: tuple[str, Piece]) -> str:
    """Return why a run is refused, after its name.

    Args:
        what: The rows that it would replace.
        path: The sink.
        found: What :meth:`ReplacedRows.of_others` returned.
    """
    name, piece = found
    return (
        f"would replace {what} in the sink {path}, but stream {name!r} has loaded {piece.describe()} into it (version "
        f"{piece.sink_version}), and nothing shows that its rows are others. Nothing was written. Use a separate sink, "
        "or, before the first load, give the sink of each stream a constant column of its own, such as "
        "constant_columns={'origin': 'crm'}, which replace_where or partition_by names too; if the run replaces no row "
        f"of stream {name!r}, set allow_overlap=True on this stream (`fds`: --allow-overlap)"
    )


def _differ(one: Any, other: Any) -> bool:
    """Whether two values differ in a column of any type and collation."""
    if type(one) is not type(other):
        return False
    if isinstance(one, str):
        return one.isascii() and other.isascii() and one.strip().lower() != other.strip().lower()
    return bool(one != other)
