"""The job specification: the task of one Spark application. Standard library only, Python 3.9 syntax.

The Airflow side writes a :class:`JobSpec` into staging; the driver (``spark/application/job.py``) reads it, processes
its batches in order, and writes one :class:`~.report.AttemptReport` per batch. Both are JSON with a ``format`` number;
a reader refuses an unknown number.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP037, UP045

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from airflow_provider_fds.batch.checked_json import SPEC_FORMAT, from_json, to_json
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_version

_DIGEST = re.compile(r"-([0-9a-f]{64})\.(?P<kind>job|fleet)\.json\Z")

#: Prefix of the names of a user job's reports; the rest increases with time.
USER_JOB_PREFIX = "user-job-"

#: Fields of a batch that its spec has only if they are set.
_WRITTEN_IF_SET = ("columns", "fed", "fed_since", "fed_batch", "may_reject", "interval_versions")
#: The same of a job.
_WRITTEN_IF_TRUE = ("tables", "allow_overlap", "linger_seconds", "expectations")

#: What becomes of a row that does not satisfy an expectation:
#:   warn   - it is written, and counted
#:   drop   - it is not written, and counted
#:   reject - it is written into the table of rejected rows instead, and counted
#:   fail   - the batch fails before anything is written
ACTIONS = ("warn", "drop", "reject", "fail")


class SpecChangedError(ValueError):
    """A job spec is not the one that the command line names."""


def check_digest(uri: str, data: bytes, kind: str) -> None:
    """Check that ``data`` is the content that the name of its file determines, ``<attempt>-<SHA-256>.<kind>.json``.

    Raises:
        SpecChangedError: The name has no digest, or the bytes have another one.
    """
    named = _DIGEST.search(uri)
    if named is None or named["kind"] != kind:
        raise SpecChangedError(
            f"the name of {uri} does not contain the SHA-256 of the spec; expected <attempt>-<sha256>.{kind}.json"
        )
    found = hashlib.sha256(data).hexdigest()
    if found != named[1]:
        raise SpecChangedError(
            f"{uri} has the SHA-256 {found}: it was changed after it was written. Nothing was run; a retry writes "
            "a new spec. Find out who else can write to the folder"
        )


@dataclass(frozen=True)
class BatchSpec:
    """One planned batch, as the driver needs it.

    ``start`` is exclusive, ``end`` inclusive; both are Delta streaming offset JSON (format 1). ``after`` is the end of
    the epoch's last batch with a transaction in the sink, or else the start of the epoch. ``num_rows`` is the number of
    rows by the statistics of the log, without rows in deletion vectors, or ``None`` if a file has no row count or the
    rows are filtered by ``where``, a predicate in Spark's SQL; ``None``: all rows of the files belong to the batch.

    A batch of a data interval names its ``interval``; ``epoch`` is then the interval's generation. If a whole interval
    is one transaction, its rows may be in several manifests: ``more_manifests`` follow ``manifest``.
    ``interval_versions`` are then the first and the last version of the interval (inclusive; below the first if it has
    none), also those without rows.

    ``divides_commit`` is whether the batch begins or ends inside a commit that both adds and removes rows; ``None``:
    not determined. It is determined for a sink that must see such commits whole.

    ``columns``, if not empty, is which column of the source feeds each column of the sink
    (``batch/column_meaning.py``), because another one may have fed it before: ``fed``, recorded at the sink's version
    ``fed_since``, or, if ``fed_batch`` is set, at the version at which this earlier batch of the same job landed.

    ``may_reject`` is how many rows a person lets expectations keep out of the sink, whatever ``max_rejected`` is.
    """

    stream: str
    uuid: str
    epoch: int
    batch_id: int
    start: str
    end: str
    after: str
    first_version: int
    last_version: int
    manifest: str
    manifest_digest: str
    num_files: int
    num_bytes: int
    num_rows: Optional[int]
    prev_txn_version: Optional[int]
    interval: Optional[str] = None
    more_manifests: Tuple[str, ...] = ()
    divides_commit: Optional[bool] = None
    where: Optional[str] = None
    columns: Dict[str, str] = field(default_factory=dict, hash=False)
    fed: Dict[str, str] = field(default_factory=dict, hash=False)
    fed_since: Optional[int] = None
    fed_batch: Optional[int] = None
    may_reject: Optional[int] = None
    interval_versions: Optional[Tuple[int, ...]] = None

    def describe(self) -> str:
        """Return which batch it is, as the beginning of a message."""
        if self.interval is not None:
            return f"stream {self.stream!r}, interval {self.interval}, generation {self.epoch}"
        return f"stream {self.stream!r}, epoch {self.epoch}, batch {self.batch_id}"

    @property
    def inner_versions(self) -> Tuple[int, ...]:
        """Versions of the commits inside which the batch begins or ends; an initial snapshot is not a commit."""
        offsets = (json.loads(self.start), json.loads(self.end))
        inner = {o["reservoirVersion"] for o in offsets if o["index"] >= 0 and not o["isStartingVersion"]}
        return tuple(sorted(inner))

    @property
    def begins_in_snapshot(self) -> bool:
        """Whether it has files of an initial snapshot, so that no version of a commit has all its rows."""
        return bool(self.start) and bool(json.loads(self.start)["isStartingVersion"])

    @property
    def txn_app_id(self) -> str:
        """The transaction application id that all batches of the stream, or of the data interval, share."""
        return txn_app_id(self.uuid, self.interval)

    @property
    def txn_version(self) -> int:
        """The transaction version of this batch."""
        return txn_version(self.epoch, self.batch_id)


@dataclass(frozen=True)
class FenceSpec:
    """Closes all epochs before ``epoch`` in the sink, by a commit with the transaction ``F(epoch)``.

    Anything that an older epoch may still try to write has a lower transaction version, so Delta skips or refuses it.
    ``write`` names one of several writes of a function, each with its own transactions.

    Attributes:
        removes: What that commit removes: ``rows`` with ``_source_version`` at or after ``from_version``, or ``all``
            (in a sink with ``scd=2``, the current rows are closed instead). ``None``: it is an append without rows.
        from_version: See ``removes``.
        is_forced: Whether rows are removed even if others may have written to the sink.
        closed_at_ms: With ``all`` and ``scd=2``: the end of the rows' validity, milliseconds since the epoch; ``None``:
            now.
        keeps_position: Whether the epoch continues in this sink where the previous one stopped. Rows that others
            removed before the fence are then not read again.
        committed: For a function: the transaction up to which its writes are committed; later ones are reported.
    """

    stream: str
    uuid: str
    epoch: int
    write: Optional[str] = None
    removes: Optional[str] = None
    from_version: Optional[int] = None
    is_forced: bool = False
    closed_at_ms: Optional[int] = None
    keeps_position: bool = False
    committed: Optional[int] = None

    @property
    def txn_app_id(self) -> str:
        """The transaction application id of the stream, or of one write of its function."""
        return txn_app_id(self.uuid, write=self.write)

    @property
    def txn_version(self) -> int:
        """The transaction version of the fence."""
        return fence_version(self.epoch)


@dataclass(frozen=True)
class Expectations:
    """The expectations of a stream.

    Attributes:
        expect: By expression, one of :data:`ACTIONS`.
        max_rejected: Greatest share of a batch's rows that may be kept out of the sink, 0 to 1; ``None``: any.
        rejects: URI of the Delta table of rejected rows; with the action ``reject`` only.
    """

    expect: Dict[str, str] = field(default_factory=dict, hash=False)
    max_rejected: Optional[float] = None
    rejects: Optional[str] = None

    def of_action(self, *actions: str) -> List[str]:
        """Return the expressions with one of the actions, in their order."""
        return [text for text, one in self.expect.items() if one in actions]

    @property
    def decides(self) -> bool:
        """Whether the number of rows that fail decides what is written, and if."""
        return bool(self.of_action("fail", "reject")) or self.max_rejected is not None

    def are_exceeded(self, rejected: int, rows: int) -> bool:
        """Whether the rejected rows of a batch are a larger share of its rows than ``max_rejected``."""
        most = self.max_rejected
        # the quotient: a product such as 0.29 * 100 is less than 29
        return most is not None and rejected > 0 and rejected / rows > most

    def to_dict(self) -> Dict[str, Any]:
        """Return the arguments of a stream that declare them, without those that are not set."""
        found: Dict[str, Any] = {"expect": dict(self.expect)} if self.expect else {}
        more = {"max_rejected": self.max_rejected, "rejects": self.rejects}
        return {**found, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True)
class JobSpec:
    """The task of one Spark application: batches in order, into one sink, or one fence.

    Attributes:
        batches: The batches, in the order in which they must be committed; none with ``fence``.
        sink: The sink as its own ``to_dict()`` (``sinks/``).
        sink_table_id: Required ``metaData.id`` of the sink, or ``None`` if no batch was ever committed to it.
        sink_version: Version of the sink that contains the stream's last commit, or ``None`` before its first commit.
        reports: URI of the folder for the attempt reports.
        attempt_id: Name of this attempt, unique within the stream.
        verify_only: Look up every batch in the sink and report; write nothing.
        stop_after_ms: Do not start another batch after this time (milliseconds since the epoch), ``None``: no limit.
        fence: What to close in the sink, ``None``: nothing.
        tables: For a function: the minimum version of each named table, because the stream has written it.
        allow_overlap: Whether the batches may append rows that another stream has loaded into the sink.
        linger_seconds: How long spark-submit waits for the next job of the run once this one is done
            (``batch/next_job.py``); ``None``: it ends.
        expectations: What each row should satisfy; ``None``: nothing.
    """

    batches: Tuple[BatchSpec, ...]
    sink: Dict[str, Any]
    sink_table_id: Optional[str]
    sink_version: Optional[int]
    reports: str
    attempt_id: str
    verify_only: bool = False
    stop_after_ms: Optional[int] = None
    fence: Optional[FenceSpec] = None
    tables: Dict[str, int] = field(default_factory=dict)
    allow_overlap: bool = False
    linger_seconds: Optional[float] = None
    expectations: Optional[Expectations] = None

    def to_json(self) -> bytes:
        """Return the spec as JSON."""
        fields = asdict(self)
        fields["batches"] = [
            {name: value for name, value in batch.items() if name not in _WRITTEN_IF_SET or value not in (None, {})}
            for batch in fields["batches"]
        ]
        return to_json(fields, leave_out=tuple(name for name in _WRITTEN_IF_TRUE if not fields[name]))

    @classmethod
    def from_json(cls, text: "str | bytes") -> "JobSpec":
        """Read a spec. Raises ``ValueError`` on another format."""
        return from_json(cls, text, "the job spec")

    @classmethod
    def from_file(cls, uri: str, data: bytes) -> "JobSpec":
        """Read the spec at ``uri``, whose name determines what its bytes must be (:func:`job_name`).

        The job does what its spec says: it calls functions and writes tables. So it accepts only the spec that the
        caller wrote, whoever else can write to the folder.

        Raises:
            SpecChangedError: The name has no digest, or the bytes have another one.
            ValueError: Another format.
        """
        check_digest(uri, data, "job")
        return cls.from_json(data)


def job_name(attempt_id: str, data: bytes) -> str:
    """Return the file name of a job spec, ``<attempt>-<SHA-256 of its bytes>.job.json``: the URI binds the content."""
    return f"{attempt_id}-{hashlib.sha256(data).hexdigest()}.job.json"


def job_attempt(uri: str) -> str:
    """Return the attempt in the name of a job spec."""
    return uri.rpartition("/")[2].rpartition("-")[0]


@dataclass(frozen=True)
class UserJobBatch:
    """What a user job is told about its batch: one string, in the plan's XCom.

    Attributes:
        batch: The batch.
        reports: URI of the folder for the job's report.
    """

    batch: BatchSpec
    reports: str

    def to_json(self) -> str:
        """Return the batch as JSON on one line."""
        return to_json(self).decode()

    @classmethod
    def from_json(cls, text: "str | bytes") -> "UserJobBatch":
        """Parse a batch.

        Raises:
            ValueError: The text is not a batch, or has another format.
        """
        try:
            return from_json(cls, text, "the value")
        except ValueError as error:
            raise ValueError(
                "the batch of this job must be plan.output['batch'] of a DeltaPlanOperator in format "
                f"{SPEC_FORMAT}, got {str(text)[:100]!r} ({error}). If another version of FDS planned it, plan it again"
            ) from error
