"""A position in the source table, in the wire format of Delta's own streaming source.

Source of the rules: ``DeltaSourceOffset`` of delta-spark 4.4. An offset of FDS can be put into the checkpoint of a
Structured Streaming query and vice versa.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from airflow_provider_fds.errors import ConfigurationError, TableReplacedError
from airflow_provider_fds.reasons import Reason

#: Index before the first file of a version: nothing of the version is consumed yet.
BASE_INDEX: Final = -100

#: :data:`BASE_INDEX` as format 1 writes it.
_BASE_INDEX_V1: Final = -1

#: Delta's indexes for a metadata change within a version, between the base and the first file. Delta writes them when
#: it tracks schemas, in format 3; FDS reads them and never produces one.
METADATA_INDEXES: Final = frozenset({-20, -19})

#: Delta's index after the last file of a version. It is never written.
_END_INDEX: Final = 2**63 - 1 - 100

#: What to do if another table is at the URI.
LOAD_NEW_TABLE: Final = (
    "Restore the old table; or load the new one with `fds rewind STREAM --to start --sink-rows keep|empty --why …`: "
    "empty, if the sink allows it, removes the rows of the old table from the sink first, with keep the sink has those "
    "of both. A new stream for the new table needs another sink"
)

_KEYS: Final = ("reservoirId", "reservoirVersion", "index", "isStartingVersion")


@dataclass(frozen=True, slots=True, order=False)
class Offset:
    """Everything up to **and including** ``(version, index)`` is consumed.

    Offsets of one table are ordered by ``(version, index)``, regardless of the flag. ``==`` compares all fields.

    Attributes:
        table_id: ``metaData.id`` of the table.
        version: Version of the table.
        index: Number of the last consumed file within the version, from 0, counting the ``add`` actions that change
            data in the order of the commit file (with the change data feed, its ``cdc`` actions, or its ``add`` and
            ``remove`` actions); :data:`BASE_INDEX` if nothing of the version is consumed.
        is_initial_snapshot: Whether ``index`` counts the files of the snapshot of ``version`` instead of those of the
            commit ``version``.

    Examples:
        >>> Offset.after(6, "6f2a").to_json()
        '{"sourceVersion":1,"reservoirId":"6f2a","reservoirVersion":7,"index":-1,"isStartingVersion":false}'
    """

    table_id: str
    version: int
    index: int = BASE_INDEX
    is_initial_snapshot: bool = False

    @classmethod
    def after(cls, version: int, table_id: str) -> Offset:
        """Return the offset at which all of ``version`` is consumed: the base of the next version."""
        return cls(table_id, version + 1)

    @property
    def next_index(self) -> int:
        """Index of the first file of :attr:`version` that is not consumed yet."""
        return max(self.index + 1, 0)

    def to_json(self) -> str:
        """Return the offset as Delta writes it, byte for byte (format 1; format 3 for a metadata index)."""
        is_v1 = self.index not in METADATA_INDEXES
        return json.dumps(
            {
                "sourceVersion": 1 if is_v1 else 3,
                "reservoirId": self.table_id,
                "reservoirVersion": self.version,
                "index": _BASE_INDEX_V1 if is_v1 and self.index == BASE_INDEX else self.index,
                "isStartingVersion": self.is_initial_snapshot,
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )

    @classmethod
    @lru_cache(maxsize=256)  # a run, and each status of a stream, asks for the position several times
    def from_json(cls, text: str | bytes) -> Offset:
        """Parse an offset of format 1 or 3, written by Delta or FDS.

        Raises:
            ConfigurationError: It is not an offset, or has another format.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON ({error})"
            raise ConfigurationError(
                f"{_shown(text)} is not an offset: it is {why}. {_EXPECTED}", reason=Reason.INVALID_OFFSET
            ) from error
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"{_shown(text)} is not an offset: expected a JSON object. {_EXPECTED}", reason=Reason.INVALID_OFFSET
            )
        source_version = _source_version(value, text)
        missing = [key for key in _KEYS if key not in value]
        if missing:
            raise ConfigurationError(
                f"{_shown(text)} is not an offset: {', '.join(missing)} missing. {_EXPECTED}",
                reason=Reason.INVALID_OFFSET,
            )
        table_id, version, index, is_initial = (value[key] for key in _KEYS)
        problems = []
        if not isinstance(table_id, str) or not table_id:
            problems.append(f"reservoirId must be the id of a table, got {table_id!r}")
        if not _is_int(version) or version < 0:
            problems.append(f"reservoirVersion must be a version number (0 or greater), got {version!r}")
        if index == _BASE_INDEX_V1 and source_version == 1 and _is_int(index):
            index = BASE_INDEX
        if not _is_int(index) or not _is_index(index):
            problems.append(
                f"index must be -1 (the base of the version) or the number of a file, from 0; got {index!r}"
            )
        if not isinstance(is_initial, bool):
            problems.append(f"isStartingVersion must be true or false, got {is_initial!r}")
        if problems:
            raise ConfigurationError(
                f"{_shown(text)} is not an offset: {'; '.join(problems)}. {_EXPECTED}", reason=Reason.INVALID_OFFSET
            )
        return cls(table_id, version, index, is_initial)

    def ensure_table(self, table_id: str, *, table: str) -> None:
        """Check that the offset belongs to the current table.

        Args:
            table_id: ``metaData.id`` of that table.
            table: Its URI, for the message.

        Raises:
            TableReplacedError: It is another table.
        """
        if self.table_id != table_id:
            raise self.belongs_elsewhere(table_id, table=table)

    def belongs_elsewhere(self, table_id: str, *, table: str) -> TableReplacedError:
        """Return the error that the table has another id, ``table_id``."""
        return TableReplacedError(
            f"{table}: the position at {self.describe()} belongs to the table with id {self.table_id}, but the "
            f"table there now has id {table_id}: it was deleted and created again, or the URI points "
            f"elsewhere. {LOAD_NEW_TABLE}",
            table=table,
            version=self.version,
        )

    def describe(self) -> str:
        """Return the position in words."""
        if self.is_initial_snapshot:
            return f"the snapshot of version {self.version}, {self.next_index} files in"
        if self.next_index > 0:
            return f"version {self.version}, {self.next_index} files in"
        return f"the beginning of version {self.version}"

    def reads_all_of(self, start: Offset) -> bool:
        """Return whether reading on from here (exclusive) reads all rows that reading on from ``start`` reads.

        A commit has the rows that were added in it, the snapshot of its version all rows of the table. So from a commit
        on, all rows of a snapshot are read only if it is the first commit of all. Of another table, none are read.
        """
        if self.table_id != start.table_id:
            return False
        if not self.is_initial_snapshot:
            is_first = self.version == 0 and not self.next_index
            return is_first or (not start.is_initial_snapshot and self <= start)
        if not self.next_index:
            return True
        if start.is_initial_snapshot:
            return self.version == start.version and self <= start
        return self.version < start.version

    def reads_rows_up_to(self, end: Offset) -> bool:
        """Return whether reading on from here (exclusive) reads any row that is read up to ``end`` (inclusive).

        From the beginning of a snapshot on, it does for every ``end``: the snapshot has the rows of earlier commits,
        too. Of another table, none are read.
        """
        if self.table_id != end.table_id or self == end:
            return False
        if self.is_initial_snapshot:
            return not self.next_index or self < end
        return self < end or (end.is_initial_snapshot and self.version == end.version)

    def __lt__(self, other: Offset) -> bool:
        return self._key(other) < (other.version, other.index)

    def __le__(self, other: Offset) -> bool:
        return self._key(other) <= (other.version, other.index)

    def __gt__(self, other: Offset) -> bool:
        return self._key(other) > (other.version, other.index)

    def __ge__(self, other: Offset) -> bool:
        return self._key(other) >= (other.version, other.index)

    def _key(self, other: Offset) -> tuple[int, int]:
        if self.table_id != other.table_id:
            raise ConfigurationError(
                f"the offsets {self.to_json()} and {other.to_json()} belong to different tables and cannot be "
                "compared: one of them is not from this stream.",
                reason=Reason.INVALID_OFFSET,
            )
        return (self.version, self.index)


def describe_position(position: str | None) -> str:
    """Return a position (offset JSON, or ``None``) in words.

    Raises:
        ConfigurationError: It is not an offset.
    """
    return "no position" if position is None else Offset.from_json(position).describe()


_EXPECTED: Final = (
    'Expected Delta\'s streaming offset, such as {"sourceVersion":1,"reservoirId":"<metaData.id>",'
    '"reservoirVersion":7,"index":-1,"isStartingVersion":false}.'
)


def _source_version(value: dict[str, Any], text: str | bytes) -> int:
    found = value.get("sourceVersion")
    if found is not None and not _is_int(found):
        raise ConfigurationError(
            f"{_shown(text)} is not an offset: sourceVersion is {found!r}, not a number. {_EXPECTED}",
            reason=Reason.INVALID_OFFSET,
        )
    if found in (1, 3):
        return int(found)
    if found is not None and found > 3:  # noqa: PLR2004  # the newest format of Delta 4.4
        raise ConfigurationError(
            f"the offset {_shown(text)} has sourceVersion {found}; this version of FDS reads 1 and 3. It was written "
            "by a newer Delta: update FDS.",
            reason=Reason.INVALID_OFFSET,
        )
    raise ConfigurationError(
        f"the offset {_shown(text)} has sourceVersion {found!r}; FDS reads 1 and 3. {_EXPECTED}",
        reason=Reason.INVALID_OFFSET,
    )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_index(index: int) -> bool:
    return 0 <= index < _END_INDEX or index == BASE_INDEX or index in METADATA_INDEXES


def _shown(text: str | bytes) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return repr(shown if len(shown) <= 200 else shown[:200] + "…")  # noqa: PLR2004  # as much as fits a log line
