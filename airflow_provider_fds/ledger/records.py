"""Records within the state of a stream: what a run did, a data interval, the previous epoch, a person's request."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

# structs read these annotations at run time, when they are defined
from airflow_provider_fds.ledger.facts import BlockedFacts, CommittedFacts, SubmittedFacts  # noqa: TC001
from airflow_provider_fds.ledger.measures import NONE_YET, Measures
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import EventTime, PlannedBatch, SnapshotRef  # noqa: TC001

_T = TypeVar("_T")


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def event_time_of(before: EventTime | None, *batches: PlannedBatch) -> EventTime | None:
    """Return the event times with those of more batches."""
    found = before
    for batch in batches:
        found = batch.event_time if found is None else found.plus(batch.event_time)
    return found


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has done in one epoch.

    Attributes:
        target: Newest version that the run saw when it first planned, ``None`` until it has planned itself.
        batches: Number of batches it committed; if 0, the fields up to ``sink_version`` are ``None`` or 0.
        start: Start of the first committed batch (exclusive).
        end: End of the last committed batch (inclusive).
        rows: Rows written, or ``None`` if unknown for one batch.
        measures: Measures of the committed batches, in total.
        event_time: Their event times, ``None`` if the stream names no column of them.
        watermark: The stream's watermark after the last of them, ``None`` if there is none.
    """

    owner: Owner
    epoch: int
    target: int | None = None
    batches: int = 0
    first_batch_id: int | None = None
    last_batch_id: int | None = None
    start: str | None = None
    end: str | None = None
    first_version: int | None = None
    last_version: int | None = None
    num_files: int = 0
    num_bytes: int = 0
    rows: int | None = 0
    measures: Measures = NONE_YET
    sink_version: int | None = None
    event_time: EventTime | None = None
    watermark: str | None = None

    def plus(self, batch: PlannedBatch, committed: CommittedFacts, watermark: str | None) -> RunRecord:
        """Return the record with one more committed batch."""
        return replace(
            self,
            batches=self.batches + 1,
            first_batch_id=_or(self.first_batch_id, batch.batch_id),
            last_batch_id=batch.batch_id,
            start=_or(self.start, batch.start),
            end=batch.end,
            first_version=_or(self.first_version, batch.first_version),
            last_version=batch.last_version,
            num_files=self.num_files + batch.num_files,
            num_bytes=self.num_bytes + batch.num_bytes,
            rows=None if self.rows is None or committed.rows is None else self.rows + committed.rows,
            measures=self.measures.plus(committed.measures),
            sink_version=committed.sink_version,
            event_time=event_time_of(self.event_time, batch),
            watermark=watermark,
        )


class IntervalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done with one data interval.

    Attributes:
        interval: ``<start>/<end>``, both as in :class:`KnownBoundary`; the end is exclusive.
        generation: How often the interval was opened, counted from 1; transactions use it in place of an epoch.
        first_version: First version of the interval.
        last_version: Its last version (inclusive), one below the first if the interval has no versions.
        owner: Who planned this generation, ``None`` until it is planned.
        planned: Batches of this generation that are not committed.
        submitted: As in ``StreamState``.
        since: Newest version of the sink that this stream had written when the generation was planned.
        batches: Number of committed batches of this generation, which the following fields describe.
        rows: Rows written, or ``None`` if unknown for one batch.
        measures: Measures of the committed batches, in total.
        event_time: Their event times, ``None`` if the stream names no column of them.
        blocked: The failed verification, until a person decides or the next generation begins.
        accepted: The failed verification that a person accepted, until its batch is committed.
    """

    interval: str
    generation: int
    first_version: int
    last_version: int
    owner: Owner | None = None
    planned: tuple[PlannedBatch, ...] = ()
    submitted: SubmittedFacts | None = None
    since: int | None = None
    options_digest: str | None = None
    batches: int = 0
    num_files: int = 0
    num_bytes: int = 0
    rows: int | None = 0
    measures: Measures = NONE_YET
    sink_version: int | None = None
    event_time: EventTime | None = None
    blocked: BlockedFacts | None = None
    accepted: BlockedFacts | None = None

    def plus(self, committed: CommittedFacts) -> IntervalRecord:
        """Return the record with the planned batches up to the committed one as committed."""
        parts = [batch for batch in self.planned if batch.batch_id <= committed.batch_id]
        return replace(
            self,
            planned=self.planned[len(parts) :],
            batches=self.batches + len(parts),
            num_files=self.num_files + sum(batch.num_files for batch in parts),
            num_bytes=self.num_bytes + sum(batch.num_bytes for batch in parts),
            rows=None if self.rows is None or committed.rows is None else self.rows + committed.rows,
            measures=self.measures.plus(committed.measures),
            sink_version=committed.sink_version,
            event_time=event_time_of(self.event_time, *parts),
            accepted=None,
        )

    @property
    def epoch(self) -> int:
        """The generation, by the name that entries about planned batches have for it."""
        return self.generation

    @property
    def is_planned(self) -> bool:
        """Whether this generation was planned, even if the plan has no batch."""
        return self.owner is not None

    @property
    def is_done(self) -> bool:
        """Whether all of this generation is committed."""
        return self.is_planned and not self.planned


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A person's request that was written; its name identifies a repeated request."""

    request_id: str
    n: int
    kind: str


class ClosedEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch that a request closed, as it was left; fields as in ``StreamState``."""

    epoch: int
    epoch_start: str | None
    position: str | None
    continues: bool
    planned: tuple[PlannedBatch, ...]
    blocked: BlockedFacts | None
    snapshot: SnapshotRef | None
    last_commit_sha256: str | None
    meaning_digest: str | None
    sink_table_id: str | None
    sink_version: int | None
    prev_txn_version: int | None = None
    tables: dict[str, int] = {}
