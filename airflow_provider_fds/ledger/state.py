"""The state of a stream: the result of folding all its entries in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import txn_version

# structs read these annotations at run time, when they are defined
from airflow_provider_fds.ledger.facts import (  # noqa: TC001
    BlockedFacts,
    CommittedFacts,
    EndedFacts,
    HeldFacts,
    QuarantinedFacts,
    RequestedFacts,
    RetiredFacts,
    SubmittedFacts,
)
from airflow_provider_fds.ledger.intervals import KnownBoundary, digest_of_parts, rows_of_parts
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.records import AnsweredRequest, ClosedEpoch, IntervalRecord, RunRecord
from airflow_provider_fds.ledger.values import (  # noqa: TC001
    Acknowledgement,
    CatalogName,
    LeftSink,
    Origin,
    PlannedBatch,
    SeenBatch,
    SinkBinding,
    SinkNames,
    SnapshotRef,
)
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.batch.spec import BatchSpec

#: Number of newest runs in the state; older ones are found in the entries.
KEPT_RUNS: Final = 20

#: Number of newest versions in the state that people let the stream pass with their rows.
KEPT_ACKNOWLEDGEMENTS: Final = 100

#: Number of skipped versions that a stream may have.
KEPT_SKIPS: Final = 1000

#: Number of newest names of people's requests in the state.
KEPT_REQUESTS: Final = 100


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stream.

    Offsets are Delta's streaming offset JSON.

    Attributes:
        phase: ``empty``: no entry. ``requested``: ``epoch`` waits to be opened. ``open``: batches of ``epoch`` can be
            planned and committed.
        request: The request for ``epoch``, while it waits to be opened; ``None`` for epoch 1.
        fence_sink: Sink in which the earlier epochs must be closed before ``epoch`` can be opened.
        closed: The previous epoch, while ``epoch`` waits to be opened; ``None`` for epoch 1.
        shown: Uncommitted batches in the sink that kept a run from opening a requested epoch, since the last epoch was
            opened.
        epoch_start: Start of the epoch (exclusive), or ``None`` unless open.
        given_start: Where the first epoch starts (exclusive), if the stream was created with a start of its own.
        continues: Whether the epoch continues where the previous one ended, and was not moved by a person.
        position: Everything up to and including it is committed, or ``None`` unless open.
        quarantined_at: Number of the entry of the last quarantine, or ``None`` if there is none, and in older folds.
        let_through_at: Number of the entry of the last quarantine for rejected rows that a person ended by accepting
            the batch, or ``None`` if there is none, and in older folds.
        moved_at: When the position last changed, ISO 8601, UTC, or ``None`` if it never has, and in older folds.
        origin: The stream that this one continues as a fork, or ``None`` if it is not a fork.
        catalog: The name in a catalog by which a run has found the source table last; ``None``: by its URI.
        table_id: ``metaData.id`` of the source table.
        snapshot: The frozen initial snapshot the epoch starts with.
        left: The sink before a replan with a new sink, until the open epoch is bound to a sink.
        sink_table_id: ``metaData.id`` the sink must have, or ``None`` while it is not known to exist.
        sink_version: Version of the sink that holds the last commit or fence of this stream.
        columns: Which column of the source has fed each column of the sink, as batches recorded it; empty if none did.
        columns_since: Version of the sink at which ``columns`` was last recorded: later renames there are not in it.
        sink_names: After a recovery, until the epoch is opened: the sink's columns; ``columns`` may lack some of them.
        sink_warnings: What fences have found in the sink, to be reported with the next committed batch.
        tables: For a function: by named table, the version that it must have at least, because the stream has written
            it, or its fence.
        next_batch_id: Id of the next batch to be planned.
        planned: Batches that are planned and not committed, in order.
        submitted: The driver in a cluster that was started last for planned batches, unless it is known to have ended.
        runs: The newest runs, oldest first.
        last_committed: The last committed batch of any epoch.
        last_txn_end: ``after`` of the next batch: end of the epoch's last batch with a transaction, else its start.
        prev_txn_version: Newest transaction of this stream in the sink, or ``None`` if it has committed nothing there.
        last_commit_sha256: Digest of the last consumed commit file of the source, or ``None`` if none was read.
        watermark: The latest event time in the committed batches of the epoch, and of those that it continues.
        ended: The version that the stream's end, given as a time, resolves to in this epoch, once it is known.
        range_options: The options of start and end with which the stream began, or ``None`` in older ledgers.
        start_kept: Other start options of the last run, which have no effect; ``None`` if it had none.
        blocked: The failed verification, until a person decides.
        accepted: The failed verification that a person accepted, until its batch is committed.
        acknowledged: What people have decided on single versions, the newest decision last.
        options_digest: Digest of the source options of the last plan.
        meaning_digest: Digest of those that change what an index within a version counts.
        boundaries: Resolved instants of a stream that reads data intervals, in order of time.
        intervals: Its intervals, the most recently changed last.
    """

    name: str
    phase: Literal["empty", "requested", "open"] = "empty"
    uuid: str = ""
    table: str = ""
    deployment: str = ""
    epoch: int = 0
    request: RequestedFacts | None = None
    fence_sink: SinkBinding | None = None
    closed: ClosedEpoch | None = None
    shown: tuple[SeenBatch, ...] = ()
    epoch_start: str | None = None
    given_start: str | None = None
    continues: bool = False
    position: str | None = None
    moved_at: str | None = None
    origin: Origin | None = None
    catalog: CatalogName | None = None
    table_id: str | None = None
    snapshot: SnapshotRef | None = None
    sink: SinkBinding | None = None
    left: LeftSink | None = None
    sink_table_id: str | None = None
    sink_version: int | None = None
    columns: dict[str, str] = {}
    columns_since: int | None = None
    sink_names: SinkNames | None = None
    sink_warnings: tuple[str, ...] = ()
    tables: dict[str, int] = {}
    next_batch_id: int = 0
    planned: tuple[PlannedBatch, ...] = ()
    submitted: SubmittedFacts | None = None
    runs: tuple[RunRecord, ...] = ()
    last_committed: CommittedFacts | None = None
    last_txn_end: str | None = None
    prev_txn_version: int | None = None
    last_commit_sha256: str | None = None
    watermark: str | None = None
    ended: EndedFacts | None = None
    range_options: dict[str, Any] | None = None
    start_kept: dict[str, Any] | None = None
    blocked: BlockedFacts | None = None
    accepted: BlockedFacts | None = None
    quarantined: QuarantinedFacts | None = None
    quarantined_at: int | None = None
    let_through_at: int | None = None
    held: HeldFacts | None = None
    acknowledged: tuple[Acknowledgement, ...] = ()
    retired: RetiredFacts | None = None
    options_digest: str | None = None
    meaning_digest: str | None = None
    answered: tuple[AnsweredRequest, ...] = ()
    boundaries: tuple[KnownBoundary, ...] = ()
    intervals: tuple[IntervalRecord, ...] = ()

    @property
    def reads_by_interval(self) -> bool:
        """Whether the stream reads data intervals, and so has no offset."""
        return bool(self.boundaries)

    @property
    def known_table_id(self) -> str | None:
        """``metaData.id`` of the source table, also of a recovered stream that has opened no epoch yet."""
        closed = None if self.closed is None else self.closed.position
        return self.table_id if closed is None or self.table_id else Offset.from_json(closed).table_id

    def interval(self, name: str) -> IntervalRecord | None:
        """Return what was done with an interval (``<start>/<end>``), or ``None`` if nothing was."""
        return next((record for record in reversed(self.intervals) if record.interval == name), None)

    @property
    def needs_fence(self) -> bool:
        """Whether Spark must close the earlier epochs in the sink before ``epoch`` can be opened."""
        return self.phase == "requested" and self.fence_sink is not None and self.fence_sink.is_fenced

    @property
    def owner(self) -> Owner | None:
        """Who may work on the planned batches, or ``None`` if nothing is planned."""
        return self.runs[-1].owner if self.planned else None

    @property
    def run(self) -> RunRecord | None:
        """The newest run of any epoch."""
        return self.runs[-1] if self.runs else None

    @property
    def first_uncommitted(self) -> int:
        """Id of the next batch to be committed, planned or not."""
        return self.next_batch_id - len(self.planned)

    @property
    def last_batch_id(self) -> int | None:
        """Id of the last committed batch of the epoch, or ``None`` if the epoch has no committed batch."""
        return self.first_uncommitted - 1 if self.first_uncommitted else None

    @property
    def next_prev_txn_version(self) -> int | None:
        """``prev_txn_version`` of the next batch to be planned."""
        return newest_transaction(self)

    @property
    def exported_to(self) -> str | None:
        """URI of the checkpoint from which a query continues at the position, ``None`` if there is none."""
        found = (one.exported_to for one in (self.held, self.retired) if one is not None)
        return next((uri for uri in found if uri is not UNSET), None)

    def run_of(self, owner: Owner) -> RunRecord | None:
        """Return the newest record of ``owner`` in this epoch, if the state still has it."""
        return next((r for r in reversed(self.runs) if r.owner == owner and r.epoch == self.epoch), None)

    def as_closed(self) -> ClosedEpoch:
        """Return the open epoch as a request leaves it."""
        kept: dict[str, Any] = {name: getattr(self, name) for name in ClosedEpoch.__struct_fields__}
        if (left := self.left) is not None:
            kept |= {
                "sink_table_id": left.table_id,
                "sink_version": left.version,
                "prev_txn_version": left.txn_version,
            }
        return ClosedEpoch(**kept)

    def with_run(self, owner: Owner, epoch: int, target: int | None = None) -> StreamState:
        """Return the state with one more run."""
        return replace(self, runs=(*self.runs, RunRecord(owner=owner, epoch=epoch, target=target))[-KEPT_RUNS:])

    def with_acknowledged(self, *new: Acknowledgement) -> StreamState:
        """Return the state with more words on versions; one replaces an earlier word on the same of its version."""
        replaced = {(word.version, word.of) for word in new}
        whole = {word.version for word in new if word.of is UNSET}
        kept = [one for one in self.acknowledged if (one.version, one.of) not in replaced and one.version not in whole]
        kept += new
        # a skip is never forgotten: the version may be read again
        surplus = sum(not word.skip for word in kept) - KEPT_ACKNOWLEDGEMENTS
        forgotten = {id(word) for word in [one for one in kept if not one.skip][: max(surplus, 0)]}
        return replace(self, acknowledged=tuple(word for word in kept if id(word) not in forgotten))

    def decisions_on(self, table_id: str) -> tuple[Acknowledgement, ...]:
        """Return the words on versions of a table, with its id: a table that is created again has other versions."""
        return tuple(
            replace(word, table_id=table_id) for word in self.acknowledged if word.table_id in (UNSET, table_id)
        )

    def with_answered(self, request_id: str, n: int, kind: str) -> StreamState:
        """Return the state with one more request of a person, written as entry ``n``."""
        new = AnsweredRequest(request_id=request_id, n=n, kind=kind)
        return replace(self, answered=(*self.answered, new)[-KEPT_REQUESTS:])

    def with_generation(self, interval: str, generation: int, first_version: int, last_version: int) -> StreamState:
        """Return the state with a new generation of an interval, which replaces the earlier one."""
        return self.with_interval(
            IntervalRecord(
                interval=interval, generation=generation, first_version=first_version, last_version=last_version
            )
        )

    def with_interval(self, record: IntervalRecord) -> StreamState:
        """Return the state with a new record of an interval, as the most recently changed one."""
        others = tuple(known for known in self.intervals if known.interval != record.interval)
        return replace(self, intervals=(*others, record))

    def with_columns(self, parts: Sequence[PlannedBatch], sink_version: int | None) -> StreamState:
        """Return the state after batches in the sink that record which column of the source feeds which of its own."""
        columns = self.columns
        for part in parts:
            if part.columns:
                from airflow_provider_fds.batch.column_meaning import fed_after

                columns = fed_after(columns, part.columns, by_key=self.sink is not None and self.sink.merges)
        if columns is self.columns:
            return self
        return replace(self, columns=columns, columns_since=sink_version)

    def specs(self, stream_uri: str) -> tuple[BatchSpec, ...]:
        """Return the planned batches as the Spark driver needs them, in order.

        Args:
            stream_uri: URI of the stream's folder in staging as Spark reaches it, without a trailing slash.
        """
        specs = []
        after = self.last_txn_end or ""
        state = self
        recorded: int | None = None
        for batch in self.planned:
            specs.append(state.spec((batch,), stream_uri, epoch=self.epoch, after=after, fed_batch=recorded))
            after = batch.end
            before, state = state, state.with_columns((batch,), None)
            recorded = recorded if state is before else batch.batch_id
        return tuple(specs)

    def spec(
        self,
        parts: Sequence[PlannedBatch],
        stream_uri: str,
        *,
        epoch: int,
        after: str,
        interval: str | None = None,
        fed_batch: int | None = None,
    ) -> BatchSpec:
        """Return planned batches that form one transaction as the Spark driver needs them.

        Args:
            parts: The batches, in order; the last one gives the transaction its id.
            stream_uri: As for :meth:`specs`.
            epoch: Their epoch, or the generation of their interval.
            after: End of the last batch before them that has a transaction.
            interval: Their data interval, or ``None`` for an offset.
            fed_batch: The batch of the same job that has recorded columns last.
        """
        from airflow_provider_fds.batch.column_meaning import may_be_moved
        from airflow_provider_fds.batch.spec import BatchSpec

        first, last = parts[0], parts[-1]
        columns: dict[str, str] = {}
        for part in parts:
            columns.update(part.columns or {})
        is_first = not first.batch_id and bool(self.columns)
        if not is_first and not may_be_moved(self.columns, columns, by_key=self.sink is not None and self.sink.merges):
            # then the driver has nothing to compare; an epoch may begin before a move that the sink has made, too
            columns = {}
        manifest, *more = (f"{stream_uri}/{part.manifest}" for part in parts)
        return BatchSpec(
            stream=self.name,
            uuid=self.uuid,
            epoch=epoch,
            batch_id=last.batch_id,
            start=first.start,
            end=last.end,
            after=after,
            first_version=first.first_version,
            last_version=last.last_version,
            manifest=manifest,
            manifest_digest=digest_of_parts(parts),
            num_files=sum(part.num_files for part in parts),
            num_bytes=sum(part.num_bytes for part in parts),
            num_rows=rows_of_parts(parts),
            prev_txn_version=first.prev_txn_version,
            interval=interval,
            more_manifests=tuple(more),
            where=first.where or None,
            columns=columns,
            fed=self.columns if columns else {},
            fed_since=self.columns_since if columns else None,
            fed_batch=fed_batch if columns else None,
            may_reject=None if last.may_reject is UNSET else last.may_reject,
        )


#: What planned batches belong to: the open epoch of a stream that reads by offset, or one data interval.
ScopeRecord = StreamState | IntervalRecord


def newest_transaction(epoch: StreamState | ClosedEpoch) -> int | None:
    """Return the newest transaction that an epoch has planned or knows to be in the sink; ``None``: none."""
    return txn_version(epoch.epoch, epoch.planned[-1].batch_id) if epoch.planned else epoch.prev_txn_version


def working_driver(record: ScopeRecord) -> SubmittedFacts | None:
    """Return the driver in a cluster that was started for planned batches, ``None`` if there is none."""
    found, epoch = record.submitted, record.epoch if isinstance(record, StreamState) else record.generation
    if found is None or found.epoch != epoch or not record.planned:
        return None
    return found if record.planned[0].batch_id <= found.batch_id else None
