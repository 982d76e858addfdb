"""The Spark driver's reports of an attempt: on a batch, and on a fence. Standard library only, Python 3.9 syntax."""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP037, UP045

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Dict, Optional, Tuple, Type, TypeVar

from airflow_provider_fds.batch.checked_json import Rules, from_json, to_json

# the types of a report's fields are read when it is decoded
from airflow_provider_fds.batch.table_writes import TableWrites  # noqa: TC001

#: Reports of an attempt: what the driver found out about one batch.
#:   written  - this attempt committed the batch to the sink, and the row count agrees with the plan
#:   verified - an earlier attempt had committed it; looked up in the sink's history, and the count agrees
#:   mismatch - the sink has a commit of this batch, but its row count is not the plan's
#:   failed   - the batch was not committed by this attempt
OUTCOMES = ("written", "verified", "mismatch", "failed")

#: Reports of a fence:
#:   fenced       - the sink holds the fence; nothing of an older epoch can land any longer
#:   sink_missing - there is no sink, so nothing to close; the first batch must create it
#:   failed       - the sink has no fence
FENCE_OUTCOMES = ("fenced", "sink_missing", "failed")


@dataclass(frozen=True)
class AttemptReport:
    """The result of one attempt on one batch. It decides nothing; the ledger does.

    Attributes:
        outcome: One of :data:`OUTCOMES`.
        sink_version: Version of the sink that contains the batch.
        sink_table_id: ``metaData.id`` of the sink.
        rows_planned: Rows of the batch by the statistics of the source's log, or ``None`` if a file has no statistics.
        rows_read: Rows of the batch: the planned number, if known; otherwise the written number, if the sink writes
            every row unchanged; otherwise ``None``, because counting them would read them again.
        rows_written: Rows that the sink's commit added (``numOutputRows``; for a merge, those that it changed).
        files_written: Data files of that commit.
        bytes_written: Bytes of these files.
        error_class: Class of the exception, for ``failed``; the reason, if FDS itself found the problem.
        error_message: Its text, shortened.
        retryable: Whether another attempt may succeed.
        seconds: Wall-clock seconds by phase: ``check`` (check whether the sink has the batch), ``load`` (the manifest),
            ``write`` (read and write the rows), ``verify`` (find the commit in the sink), and ``total``.
        settings: Spark settings in force that affect the rows.
        warnings: What a person should know about the sink, such as rows that another writer removed.
        tables: For a function: the version of each named table that contains the newest transaction of the write.
        reason: The :class:`~airflow_provider_fds.reasons.Reason`, if FDS itself found the problem. A newer driver may
            have one that is unknown here.
        rows_rejected: Rows that expectations kept out of the sink.
        failed_rows: By expectation, the number of rows that failed it; empty if that is not known, too.
        rows_tested: Rows that expectations tested, of a batch that was refused because it would leave out too many.
    """

    what: ClassVar[str] = "the attempt report"
    outcomes: ClassVar[Tuple[str, ...]] = OUTCOMES

    uuid: str
    epoch: int
    batch_id: int
    manifest_digest: str
    attempt_id: str
    outcome: str
    sink_version: Optional[int] = None
    sink_table_id: Optional[str] = None
    rows_planned: Optional[int] = None
    rows_written: Optional[int] = None
    files_written: Optional[int] = None
    bytes_written: Optional[int] = None
    error_class: Optional[str] = None
    error_message: Optional[str] = None
    retryable: bool = True
    seconds: Dict[str, float] = field(default_factory=dict)
    settings: Dict[str, str] = field(default_factory=dict)
    rows_read: Optional[int] = None
    warnings: Tuple[str, ...] = ()
    tables: Dict[str, int] = field(default_factory=dict)
    reason: Optional[str] = None
    rows_rejected: int = 0
    failed_rows: Dict[str, int] = field(default_factory=dict)
    rows_tested: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the sink has the batch and the row count agrees."""
        return self.outcome in ("written", "verified")

    def differs_from(self, *, uuid: str, epoch: int, batch_id: int, digest: str, attempt_id: str) -> Optional[str]:
        """Return why this is not about the batch and the attempt but, say, a copy of another report; else ``None``."""
        wanted = {
            "uuid": uuid,
            "epoch": epoch,
            "batch_id": batch_id,
            "manifest_digest": digest,
            "attempt_id": attempt_id,
        }
        for name, value in wanted.items():
            if (found := getattr(self, name)) != value:
                return f"it belongs to another batch or attempt: {name} is {found!r}, expected {value!r}"
        return None

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        optional = ("warnings", "tables", "reason", "rows_rejected", "failed_rows", "rows_tested")
        return to_json(self, leave_out=tuple(name for name in optional if not getattr(self, name)))


@dataclass(frozen=True)
class LandedBatch:
    """A batch of an older epoch in the sink, as its commit describes it: ``end`` is inclusive, offset JSON."""

    epoch: int
    batch_id: int
    end: str
    digest: str
    sink_version: int


@dataclass(frozen=True)
class RemovedRows:
    """The removal of rows by a fence, whose epoch may never have begun.

    Attributes:
        epoch: The epoch of the fence.
        sink_version: The commit that removed rows; 0 if log cleanup removed it, and only its transaction is known.
        what: As in :class:`FenceSpec`; ``None`` if the effect is unknown: of a statement that FDS did not write, or
            that log cleanup removed.
        from_version: As in :class:`FenceSpec`.
        rows: Written by earlier versions, for such a statement.
        is_all: Written by earlier versions, for such a statement.
    """

    epoch: int
    sink_version: int
    what: Optional[str] = None
    from_version: Optional[int] = None
    rows: Optional[int] = None
    is_all: bool = False


@dataclass(frozen=True)
class FenceEvidence:
    """What the sink's log records of the stream before a fence.

    Attributes:
        newest: Newest transaction of the stream, or ``None`` if it has no transaction. It outlives its commit.
        is_cut: Whether log cleanup removed commits since the stream's last known one, so that landed batches may be
            missing from the list.
        broken_at: The RESTORE, REPLACE or CLONE that removed, or may have removed, what the stream had committed;
            ``None`` if there was none.
        removed: What this fence and those of earlier epochs removed since the stream's last known commit, oldest first.
        restored_to: The version, before the stream's last known commit, to which a RESTORE at ``broken_at`` restored
            the sink; ``None`` if there was no RESTORE, or it does not record the version.
    """

    newest: Optional[int] = None
    is_cut: bool = False
    broken_at: Optional[int] = None
    removed: Tuple[RemovedRows, ...] = ()
    restored_to: Optional[int] = None


@dataclass(frozen=True)
class FenceReport:
    """The result of one attempt on a fence.

    Attributes:
        outcome: One of :data:`FENCE_OUTCOMES`.
        sink_version: Version of the sink that contains the fence.
        sink_table_id: ``metaData.id`` of the sink.
        landed: Batches of older epochs in the sink since the stream's last known commit, oldest first, without those
            that a later RESTORE or REPLACE, or the fence itself, removed.
        retryable: Whether another attempt may succeed.
        writes: For a function: names of the writes whose tables contain the fence; the tables of the others are
            missing.
        tables: For a function: what each of these tables has of its write, by the write's name.
        has_removed: Whether the fence removed what it had to remove; true if that was nothing.
        removed_rows: Rows that it removed or closed, or ``None`` if the commit does not record them.
        evidence: What the sink's log records from before the fence; ``None`` for the tables of a function.
        warnings: What a person should know about the sink, such as rows that another writer removed.
        reason: As in :class:`AttemptReport`.
    """

    what: ClassVar[str] = "the fence report"
    outcomes: ClassVar[Tuple[str, ...]] = FENCE_OUTCOMES

    uuid: str
    epoch: int
    attempt_id: str
    outcome: str
    sink_version: Optional[int] = None
    sink_table_id: Optional[str] = None
    landed: Tuple[LandedBatch, ...] = ()
    error_class: Optional[str] = None
    error_message: Optional[str] = None
    retryable: bool = True
    writes: Tuple[str, ...] = ()
    tables: Dict[str, TableWrites] = field(default_factory=dict)
    has_removed: bool = True
    removed_rows: Optional[int] = None
    evidence: Optional[FenceEvidence] = None
    warnings: Tuple[str, ...] = ()
    reason: Optional[str] = None

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        optional = ("warnings", "reason", "tables")
        return to_json(self, leave_out=tuple(name for name in optional if not getattr(self, name)))


#: What to do about a file that is not a report, if every later attempt meets it again.
UNREADABLE_ADVICE = (
    "It may be the one that says that the batch is done, so nothing was written. If a newer version of FDS wrote it, "
    "use that version; otherwise find out whether the batch was loaded and who else can write to the folder, then "
    "delete the file"
)

_Report = TypeVar("_Report", AttemptReport, FenceReport)

#: Reports hold versions, counts and transactions, so no negative number.
_RULES = Rules(least=0, ignores_unknown=True)


def decode(kind: Type[_Report], text: "str | bytes") -> _Report:
    """Read a report: the one reading of it, for the driver and for Airflow.

    Fields of a newer driver are ignored; whatever else is unexpected makes the report unusable.

    Raises:
        ValueError: The text is not a report of this kind: another format, a field of another type or out of range, or
            an unknown outcome.
    """
    report = from_json(kind, text, kind.what, _RULES)
    if report.outcome not in kind.outcomes:
        expected = ", ".join(kind.outcomes)
        raise ValueError(f"{kind.what} has the outcome {report.outcome[:100]!r}; expected one of {expected}")
    return report


def report_name(epoch: int, batch_id: int, attempt_id: str) -> str:
    """Return the name of an attempt report below :attr:`JobSpec.reports`: ``<epoch>/<batch>/<attempt>.json``."""
    return f"{epoch}/{batch_id}/{attempt_id}.json"


#: How the name of the marker ends that an attempt leaves before it touches the sink.
STARTED = ".started.json"


def started_name(epoch: int, batch_id: int, attempt_id: str) -> str:
    """Return the name of that marker below :attr:`JobSpec.reports`."""
    return f"{epoch}/{batch_id}/{attempt_id}{STARTED}"


def fence_report_name(epoch: int, attempt_id: str) -> str:
    """Return the name of a fence's report below :attr:`JobSpec.reports`: ``<epoch>/fence/<attempt>.json``."""
    return f"{epoch}/fence/{attempt_id}.json"
