"""The values that entries consist of: the sink of a stream, a planned batch, a fence, and so on.

A field that is added later has a default, so that older entries can still be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from airflow_provider_fds.ledger.layout import check_manifest_key, check_snapshot_key

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import Sink


def _sink_class(kind: str) -> type[Sink] | None:
    from airflow_provider_fds.sinks import sink_class

    return sink_class(kind)


class CatalogName(msgspec.Struct, frozen=True, kw_only=True):
    """The name by which a stream has found its table last.

    Attributes:
        connection: Id of the Airflow connection of the catalog.
        name: The name, as the catalog spells it.
        table_id: What the catalog tells the table by from another one of that name; empty if nothing does.
    """

    connection: str
    name: str
    table_id: str = ""


class SnapshotRef(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen initial snapshot in staging.

    Attributes:
        key: The file, relative to the stream's folder.
        timestamp_ms: Commit time of the version, milliseconds since the epoch; kept because log cleanup removes it.
    """

    version: int
    digest: str
    key: str
    num_files: int
    num_bytes: int
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        check_snapshot_key(self.key)


class SeenBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of a closed epoch that a run found in the sink, uncommitted, and showed to people.

    Attributes:
        digest: Digest of its manifest, empty if the ledger does not know the batch.
        sink_version: Version of the sink that holds it.
        write: For a function: name of the write whose table holds it; empty for a sink of FDS.
    """

    epoch: int
    batch_id: int
    digest: str
    sink_version: int
    write: str = ""


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What the fence of a requested epoch removes from the sink, in its own transaction.

    Attributes:
        what: ``rows``: those with ``_source_version`` at or after ``from_version``. ``all``: every row; in a sink that
            keeps history (``scd=2``), the current rows are closed instead.
        from_version: First version of the source whose rows are removed (inclusive), ``None`` with ``all``.
        is_forced: Whether rows are removed even if others may have written to the sink.
    """

    what: Literal["rows", "all"]
    from_version: int | None = None
    is_forced: bool = False


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """How the earlier epochs were closed in the sink.

    Attributes:
        status: ``done``: an empty append with a higher transaction version is in the sink. ``sink_missing``: there is
            no sink, so the first write of the epoch creates it or fails. ``not_needed``: first epoch, or user job.
        versions: Transaction version of the fence by transaction application id.
        sink_version: Version of the sink that holds the fence.
        sink_table_id: ``metaData.id`` of that sink, which is the stream's from here on.
        removal: What the fence removed from the sink, or ``None`` if nothing was requested.
        removed_rows: Number of rows removed or closed, or ``None`` if the sink does not report it.
        lacks_committed: Whether the sink lacked, or may have lacked, committed batches before the fence.
        warnings: What a person should know about the sink before the fence.
    """

    status: Literal["not_needed", "done", "sink_missing"] = "not_needed"
    versions: dict[str, int] = {}
    sink_version: int | None = None
    sink_table_id: str | None = None
    removal: Removal | None = None
    removed_rows: int | None = None
    lacks_committed: bool = False
    warnings: tuple[str, ...] = ()


class SinkBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The one sink of a stream.

    Attributes:
        kind: Kind of the sink (``sinks/``), ``user_job`` for a user job.
        target: URI of the sink; the function of ``foreach_batch``; empty for ``user_job``.
        app_ids: Transaction application ids of the declared writes.
        tables: URI of the table of each declared write of ``foreach_batch`` that has one, by the write's name.
    """

    kind: str
    target: str = ""
    app_ids: tuple[str, ...] = ()
    tables: dict[str, str] = {}

    @classmethod
    def of_target(cls, target: str) -> SinkBinding:
        """Return the sink that a person names by its target, without the ids of its transactions."""
        from airflow_provider_fds.sinks import kind_of_target

        return cls(kind=kind_of_target(target), target=target)

    @property
    def is_user_job(self) -> bool:
        """Whether a user job loads the batches: no fence, no digest, no check of the sink."""
        return self.kind == "user_job"

    @property
    def is_user_defined(self) -> bool:
        """Whether user code writes the rows to places unknown to FDS: no fence, no table, no check of the sink."""
        if self.is_user_job:
            return True
        sink = _sink_class(self.kind)
        return sink is not None and sink.target not in ("delta_table", "database_table")

    @property
    def has_log(self) -> bool:
        """Whether it is a Delta table that FDS writes, whose log can be read without Spark."""
        sink = _sink_class(self.kind)
        return not self.is_user_job and (sink is None or sink.target == "delta_table")

    @property
    def can_remove_rows(self) -> bool:
        """Whether a fence can remove rows from it."""
        sink = _sink_class(self.kind)
        return not self.is_user_defined and (sink is None or sink.removes_from(self.target))

    @property
    def all_rows_option(self) -> str:
        """The option of ``fds rewind`` to load everything into an empty sink, with a space before it.

        Who reads it removes the rows, if FDS can remove none.
        """
        return " --sink-rows empty" if self.can_remove_rows else " --sink-rows keep"

    def sink(self) -> Sink | None:
        """Return a sink of this kind and target, which is enough to close epochs in it; ``None``: unknown kind."""
        found = _sink_class(self.kind)
        return None if found is None else found.of_target(self.target)

    @property
    def delivery(self) -> str | None:
        """What keeps a repeated batch from being written twice; ``None`` if unknown.

        See :data:`~airflow_provider_fds.sinks.base.Delivery`.
        """
        sink = _sink_class(self.kind)
        return None if sink is None else sink.delivery

    @property
    def is_function(self) -> bool:
        """Whether a user's function writes the rows, as a sink of FDS."""
        sink = _sink_class(self.kind)
        return sink is not None and sink.target == "function"

    @property
    def is_fenced(self) -> bool:
        """Whether older epochs are closed in the sink, which is possible if FDS knows a table."""
        return not self.is_user_defined or bool(self.tables)

    @property
    def replaces(self) -> bool:
        """Whether a write replaces an earlier one of the same data interval."""
        sink = _sink_class(self.kind)
        return sink is not None and sink.replaces_in(self.target)

    @property
    def merges(self) -> bool:
        """Whether an incoming row replaces the row with its key."""
        sink = _sink_class(self.kind)
        return sink is not None and sink.merges_into(self.target)

    def adds_writes_to(self, bound: SinkBinding) -> bool:
        """Whether this is the function of ``bound`` with added writes or tables, and the earlier ones unchanged."""
        is_same_function = (self.kind, self.target) == (bound.kind, bound.target)
        keeps = set(self.app_ids) >= set(bound.app_ids) and self.tables.items() >= bound.tables.items()
        return is_same_function and self.is_function and keeps and self != bound

    def describe(self) -> str:
        """Return the sink in words."""
        if self.is_user_job:
            return "the user job"
        if not self.is_function:
            return f"{self.kind} {self.target}"
        writes = ", ".join(app_id.partition("#")[2] for app_id in self.app_ids)
        return f"{self.kind} {self.target} (writes: {writes or 'none'})"


class LeftSink(msgspec.Struct, frozen=True, kw_only=True):
    """The sink that a replan with a new sink has left, closed by the open epoch's fence, until it is bound again.

    Attributes:
        version: Version of the sink that holds the fence.
        table_id: ``metaData.id`` of that sink.
        txn_version: Transaction of the fence.
    """

    sink: SinkBinding
    version: int | None
    table_id: str | None
    txn_version: int


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of the range that yields no rows, and why."""

    version: int
    operation: str | None
    reason: str


class PassedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A version from which on the table has another schema, and why the stream passes it.

    Attributes:
        changes: The lines of a diff of the columns.
        allowed_by: The option, setting, person or default that lets the stream pass.
    """

    version: int
    changes: tuple[str, ...]
    allowed_by: str


class EventTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The event times of one or more batches, by the log's statistics: ISO 8601, UTC, microseconds; empty if unknown.

    Attributes:
        min: No row is earlier.
        max: No row is later.
        seen: A row is at least as late; up to 999 microseconds before ``max`` if the log cut the time to milliseconds.
        missing: Why the times are unknown. Empty if they are known, or if no row has a time.
    """

    min: str = ""
    max: str = ""
    seen: str = ""
    missing: str = ""

    def plus(self, other: EventTime | None) -> EventTime:
        """Return the times of both; unknown if one is."""
        if other is None or self.missing:
            return self
        if other.missing or not self.min:
            return other
        if not other.min:
            return self
        return EventTime(min=min(self.min, other.min), max=max(self.max, other.max), seen=max(self.seen, other.seen))


class PlannedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch as it was frozen.

    Attributes:
        manifest: Folder of the manifest, relative to the stream's folder; empty without a manifest.
        digest: Digest of the manifest.
        num_rows: Rows according to the log's statistics, or ``None`` if a file has no statistics or there is ``where``.
        prev_txn_version: Newest transaction that the sink must have before this batch, or ``None`` for none.
        log_digest: Digest over versions and sizes of the commit files of the range.
        last_commit_sha256: Digest of the commit file of ``last_version``.
        log_checksum: Checksum over versions and contents of the commit files of the range; empty in older entries.
        log_etags: Digest over versions and ETags of these files; empty if the storage has no ETags.
        schema_changes: Changes of the schema in the range.
        event_time: Its event times, ``None`` if the stream names no column of them.
        where: The predicate, in Spark's SQL, that its rows satisfy; empty: they are all rows of its files.
        columns: Which column of the source feeds each column of the sink (``batch/column_meaning.py``). Recorded if the
            source has column mapping and another column than before, or none, fed one of them.
        may_reject: How many of its rows a person lets expectations keep out of the sink, whatever ``max_rejected`` is.
    """

    batch_id: int
    start: str
    end: str
    first_version: int
    last_version: int
    manifest: str
    digest: str
    num_files: int
    num_bytes: int
    num_rows: int | None
    prev_txn_version: int | None
    skipped: tuple[Skipped, ...]
    log_digest: str
    last_commit_sha256: str
    log_checksum: str = ""
    log_etags: str = ""
    schema_changes: tuple[PassedSchema, ...] = ()
    event_time: EventTime | None = None
    where: str = ""
    columns: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    may_reject: int | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        check_manifest_key(self.manifest)


def decision_to(*, skip: bool) -> Literal["accept", "skip"]:
    """Return the decision that leaves out a version's rows, or the one that takes the version as it is."""
    return "skip" if skip else "accept"


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """A version that a person lets the stream pass.

    Attributes:
        who: That person, in words.
        why: The reason given.
        skip: Whether its rows are omitted even if the stream may read them.
        of: What the person decided on: its ``schema`` or its ``rows``. Unset in older entries, which decide on both:
            the schema takes effect, and rows that the options refuse are omitted.
        table_id: ``metaData.id`` of the source table that has the version; unset before the first epoch.
    """

    version: int
    who: str
    why: str
    skip: bool = False
    of: Literal["schema", "rows"] | UnsetType = UNSET
    table_id: str | UnsetType = UNSET

    @property
    def decision(self) -> Literal["accept", "skip"]:
        """What the person decided, as the ways out of a stop are named."""
        return decision_to(skip=self.skip)

    def lets_pass(self, way_on: str) -> bool:
        """Whether it is the decision ``accept`` or ``skip``, without which the stream stops at its version."""
        return self.of is UNSET or way_on == self.decision


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The stream that a fork continues, as its ledger was at that moment.

    Attributes:
        stream: Its name.
        uuid: Its random id.
        epoch: Its open epoch.
        offset: Its position: everything up to and including it is left to that stream.
        snapshot: The frozen snapshot that contains the position; the fork has a copy.
        meaning_digest: Digest of the options by which a position within a version was counted.
        last_commit_sha256: Digest of the last consumed commit file of the source, or ``None`` if none was read.
        range_options: The options of start and end with which that stream began.
        acknowledged: Versions that people let that stream pass.
    """

    stream: str
    uuid: str
    epoch: int
    offset: str
    snapshot: SnapshotRef | None = None
    meaning_digest: str | None = None
    last_commit_sha256: str | None = None
    range_options: dict[str, Any] | None = None
    acknowledged: tuple[Acknowledgement, ...] = ()


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was unreadable when the ledger was begun again.

    Attributes:
        sha256: Digest of its bytes, empty if it was missing.
        why: What was wrong with it.
    """

    n: int
    sha256: str
    why: str


class SinkNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a sink's columns had with its newest batch, for a ledger that lacks what fed them.

    Attributes:
        end: End of the batch (inclusive).
        version: Version of the sink; later renames there are not in it.
        paths: The columns and fields, by their paths (``batch/column_meaning.py``).
    """

    end: str
    version: int
    paths: tuple[str, ...]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink records of a stream whose ledger was lost or is unreadable.

    The fields after ``names`` are for an unreadable ledger: they hold what its other entries say.

    Attributes:
        epoch: Newest epoch with a batch or a fence in the sink.
        position: End of the newest batch (inclusive); ``None`` if the sink has only fences of the stream.
        sink: The sink.
        names: Its columns, if its schema could be read.
        after: The newest epoch that an entry may have requested; the new epoch comes after it, too.
        snapshot: The frozen snapshot that contains the position.
        meaning_digest: Digest of the options by which a position within a version was counted.
        held: Why the stream is held, or ``None`` if it is not.
        acknowledged: Versions that the stream may pass.
        origin: The stream that this one continues as a fork.
        given_up: The unreadable entries.
    """

    epoch: int
    position: str | None
    sink: SinkBinding
    names: SinkNames | UnsetType = UNSET
    after: int = 0
    snapshot: SnapshotRef | None = None
    meaning_digest: str | None = None
    held: str | None = None
    acknowledged: tuple[Acknowledgement, ...] = ()
    origin: Origin | None = None
    given_up: tuple[GivenUp, ...] = ()
