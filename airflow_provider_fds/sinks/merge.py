"""The sink that keeps one row, or one history, per key. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from airflow_provider_fds.sinks import options
from airflow_provider_fds.sinks.delta import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.sinks.constants import Constant

#: Columns that ``scd=2`` adds, with their types: start (inclusive) and end (exclusive) of a row's validity, and whether
#: it is current.
VALIDITY = {"_valid_from": "timestamp", "_valid_to": "timestamp", "_is_current": "boolean"}


@dataclass(frozen=True)
class DeltaMergeSink(DeltaSink):
    """Upserts each batch into a Delta table by key, exactly once, in a single MERGE.

    If the table does not exist, the first batch creates it. Each row updates the row with its key (columns that only
    the sink has stay unchanged) or is inserted if the key is missing. Rows of a change data feed can also delete the
    row with their key: ``delete`` rows do, and so do ``update_preimage`` rows whose key no longer exists after the
    update. The sink is for streams that read by offset: data intervals run in any order, but a merge needs the order of
    the commits.

    Order:
        - If a batch has several changes to a key, the last one counts: the one with the highest ``sequence_by``. Among
          equal values, or without ``sequence_by``, it is the one with the highest commit of the source.
        - Two rows with the same key that this order cannot tell apart are refused, and so is NULL in a key or in
          ``sequence_by``. The batch fails with their number and an example.
        - With ``sequence_by``, a late row whose value is lower than that of the sink's row changes nothing. The sink
          does not remember deleted keys, so a late row of a deleted key brings it back.

    Whole commits:
        - Limits do not cut a commit of the change feed that both adds and removes rows, such as an overwrite: one part
          of it would delete keys that the other part adds. A batch with a cut commit is refused before anything is
          written.
        - Two rows with the same key in one commit are detected only within one batch. Limits may cut a commit that only
          adds rows, and the initial snapshot: set ``whole_commits=True`` if a commit may have two rows with the same
          key.

    History:
        With ``scd=2`` a change to a key closes the current row (``_valid_to``, exclusive) and inserts the new one:
        ``_valid_from`` (inclusive) is the commit time of the change in the source; ``_valid_to`` is NULL and
        ``_is_current`` is true while the row is current. Several changes to a key in a batch make several rows.

    Args:
        keys: Columns that identify a row; required.
        sequence_by: Column that orders the changes to a key, if the order of commits does not; not with ``scd=2``.
        scd: 1: the sink keeps the newest row per key. 2: it keeps all rows, with their validity periods.

    The other arguments are those of :class:`DeltaSink`.
    """

    kind: ClassVar[str] = "delta_merge"
    needs_order: ClassVar[bool] = True
    needs_whole_commits: ClassVar[bool] = True
    needs_keys: ClassVar[bool] = True

    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    scd: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scd not in (1, 2) or isinstance(self.scd, bool):
            raise ValueError(f"DeltaMergeSink: scd must be 1 (newest row of a key) or 2 (history), got {self.scd!r}")
        if self.scd == 2 and self.sequence_by is not None:  # noqa: PLR2004  # type 2 is its name
            raise ValueError(
                "DeltaMergeSink: scd=2 cannot be combined with sequence_by: the history follows the order of the "
                "source's commits. Omit sequence_by"
            )
        if self.scd == 2 and (taken := [c for c in self.constant_columns if c.lower() in VALIDITY]):  # noqa: PLR2004
            raise ValueError(
                f"DeltaMergeSink: constant_columns has {', '.join(taken)}, which scd=2 adds; use another name"
            )
        object.__setattr__(self, "keys", checked_keys(self))

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The keys, the column that orders changes and the columns to write, unless ``transform`` may add them."""
        return columns_by_key(self)

    @property
    def keeps_history(self) -> bool:
        """Whether a row that is no longer current is closed instead of removed: with ``scd=2``."""
        return self.scd == 2  # noqa: PLR2004  # type 2 is its name

    @property
    def writes_rows_as_they_are(self) -> bool:
        """Always false: the effect of a batch depends on the rows already in the sink.

        The commit's digest shows that the batch is there.
        """
        return False


class _ByKey(Protocol):
    """A sink that applies rows by key."""

    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def sequence_by(self) -> str | None: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def transform(self) -> str | None: ...
    @property
    def constant_columns(self) -> Mapping[str, Constant]: ...


def checked_keys(sink: _ByKey) -> tuple[str, ...]:
    """Return the keys of a sink as a tuple.

    Raises:
        ValueError: There are none, ``sequence_by`` is no column, or ``columns`` lacks one of them.
    """
    name = type(sink).__name__
    keys = options.names(sink.keys, f"{name}: keys")
    if not keys:
        raise ValueError(f"{name}: keys is required: name the columns that identify a row, keys=['…']")
    if sink.sequence_by is not None and (not isinstance(sink.sequence_by, str) or not sink.sequence_by):
        raise ValueError(f"{name}: sequence_by must be one column, got {sink.sequence_by!r}")
    needed = [*keys, *([] if sink.sequence_by is None else [sink.sequence_by])]
    chosen = {column.lower() for column in (*sink.columns, *sink.constant_columns)}
    if missing := [column for column in needed if sink.columns and column.lower() not in chosen]:
        raise ValueError(f"{name}: columns must include keys and sequence_by; missing: {', '.join(missing)}")
    return keys


def columns_by_key(sink: _ByKey) -> tuple[str, ...]:
    """Return the columns that a batch must have for a merge, unless ``transform`` may add them."""
    if sink.transform is not None:
        return ()
    added = {column.lower() for column in sink.constant_columns}
    needed = (*sink.keys, *(() if sink.sequence_by is None else (sink.sequence_by,)), *sink.columns)
    return tuple(column for column in needed if column.lower() not in added)
