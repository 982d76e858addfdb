"""What crosses the border to the Spark driver, and what comes back: standard library only, Python 3.9 syntax.

The Airflow side writes a :class:`JobSpec` into staging; the driver (``spark/job.py``) reads it, works its batches
off in order, and writes one :class:`AttemptReport` per batch. Both are JSON with a ``format`` number; a reader refuses
a number it does not know.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP037, UP045

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

#: Version of the JSON below. Raised when a reader of the old one would misread the new one.
SPEC_FORMAT = 1

#: Reports of a fence:
#:   fenced       - the sink holds the fence; nothing of an older epoch can land any more
#:   sink_missing - there is no sink, so nothing to be closed; the first batch has to create it
#:   failed       - the fence is not there
FENCE_OUTCOMES = ("fenced", "sink_missing", "failed")

#: Reports of an attempt: what the driver found out about one batch.
#:   written  - this attempt committed the batch to the sink, and the row count agrees with the plan
#:   verified - an earlier attempt had committed it; looked up in the sink's history, and the count agrees
#:   mismatch - the sink has a commit of this batch, but its row count is not the plan's
#:   failed   - the batch was not committed by this attempt
OUTCOMES = ("written", "verified", "mismatch", "failed")

_T = TypeVar("_T")

#: Fields of ``userMetadata`` that are always there.
_OF_A_FENCE: Dict[str, type] = {"stream": str, "uuid": str, "epoch": int, "fence": int}
_OF_A_BATCH: Dict[str, type] = {"stream": str, "uuid": str, "epoch": int, "batch_id": int, "end": str, "digest": str}

_OF_A_WRITE: Dict[str, type] = {"stream": str, "uuid": str, "epoch": int, "batch_id": int, "digest": str, "write": str}

_JOB_DIGEST = re.compile(r"-([0-9a-f]{64})\.job\.json\Z")


class SpecChangedError(ValueError):
    """A job spec is not the one that the command line names."""


def txn_app_id(uuid: str, interval: Optional[str] = None, write: Optional[str] = None) -> str:
    """Return the Delta transaction application id of a stream.

    Args:
        uuid: The stream's.
        interval: One of its data intervals (``<start>/<end>``), ``None``: the stream reads by offset.
        write: Name of one of several writes of a batch, ``None``: the batch is one write.
    """
    return "fds:" + uuid + ("" if interval is None else ":" + interval) + ("" if write is None else "#" + write)


def txn_version(epoch: int, batch_id: int) -> int:
    """Return ``T(e, b) = e * 2^32 + b + 1``, rising with the batches of an epoch and with the epochs."""
    return (epoch << 32) + batch_id + 1


def fence_version(epoch: int) -> int:
    """Return ``F(e) = e * 2^32``: above every transaction of the epochs before ``e``, below all of ``e``."""
    return epoch << 32


def txn_epoch(transaction: int) -> int:
    """Return the epoch of a transaction, of a batch or of a fence: the inverse of :func:`txn_version`."""
    return transaction >> 32


def txn_batch_id(transaction: int) -> int:
    """Return the batch of a transaction, -1 of a fence: the inverse of :func:`txn_version`."""
    return transaction - fence_version(txn_epoch(transaction)) - 1


def _from_json(cls: Type[_T], text: "str | bytes", what: str) -> _T:
    try:
        raw: Dict[str, Any] = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{what} is nested too deeply") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is no JSON object")  # noqa: TRY004 - a reader catches one error
    got = raw.pop("format", None)
    if got != SPEC_FORMAT:
        raise ValueError(
            f"{what} has format {got!r}, this version of FDS reads {SPEC_FORMAT}: it was written by another version; "
            "run the task with the version that planned the batch, or plan it again"
        )
    return _checked(cls, raw, what)


def _checked(cls: Type[_T], raw: Any, what: str) -> _T:
    """Make a value of JSON that has the types of the fields; integers are versions and counts, -1 to 2^63 - 1."""
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is no JSON object")  # noqa: TRY004 - a reader catches one error
    for spec in fields(cls):  # type: ignore[arg-type]
        if spec.name in raw and not _is_of(raw[spec.name], str(spec.type)):
            raise ValueError(f"{what} has the {spec.name} {str(raw[spec.name])[:100]!r}, expected {spec.type}")
    try:
        return cls(**raw)
    except TypeError as error:
        raise ValueError(f"{what} does not have the fields of one ({error})") from error


def _is_of(value: Any, kind: str) -> bool:
    """Say whether a value of JSON has the type that a field's annotation names; values in tuples are checked later."""
    if kind.startswith("Optional["):
        return value is None or _is_of(value, kind[len("Optional[") : -1])
    if kind.startswith("Tuple["):
        return isinstance(value, (list, tuple)) and (
            kind != "Tuple[str, ...]" or all(isinstance(one, str) for one in value)
        )
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 1 << 63
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
    if kind.startswith("Dict["):
        inner = kind[len("Dict[str, ") : -1]
        return isinstance(value, dict) and (inner == "Any" or all(_is_of(one, inner) for one in value.values()))
    return isinstance(value, {"str": str, "bool": bool}.get(kind, dict))


def _to_json(value: Any, leave_out: Tuple[str, ...] = ()) -> bytes:
    fields = {name: field for name, field in asdict(value).items() if name not in leave_out}
    return json.dumps({"format": SPEC_FORMAT, **fields}, sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True)
class BatchSpec:
    """One planned batch, as the driver needs it.

    ``start`` is exclusive, ``end`` inclusive; both are Delta streaming offset JSON (format 1). ``after`` is the end
    of the last batch of the epoch that has a transaction in the sink, else the start of the epoch. ``num_rows`` is
    the number of rows by the statistics of the log, deletion vectors subtracted, or ``None`` if a file has none.

    A batch of a data interval names its ``interval``; ``epoch`` is then the interval's generation. Where a whole
    interval is one transaction, its rows may be in several manifests: ``more_manifests`` come after ``manifest``.

    ``divides_commit`` says whether the batch begins or ends inside a commit that both adds and removes rows; ``None``:
    nobody has looked. It is looked up for a sink that has to see such commits whole.
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

    @property
    def inner_versions(self) -> Tuple[int, ...]:
        """Versions of commits that the batch begins or ends inside of; an initial snapshot is no commit."""
        offsets = (json.loads(self.start), json.loads(self.end))
        inner = {o["reservoirVersion"] for o in offsets if o["index"] >= 0 and not o["isStartingVersion"]}
        return tuple(sorted(inner))

    @property
    def txn_app_id(self) -> str:
        """The transaction application id all batches of the stream, or of the data interval, share."""
        return txn_app_id(self.uuid, self.interval)

    @property
    def txn_version(self) -> int:
        """The transaction version of this batch."""
        return txn_version(self.epoch, self.batch_id)


@dataclass(frozen=True)
class FenceSpec:
    """Closes all epochs before ``epoch`` in the sink, by a commit with the transaction ``F(epoch)``.

    What an older epoch may still try to write has a lower transaction version, and is skipped or refused by Delta.
    ``write`` names one of several writes of a function, each with transactions of its own.

    Attributes:
        removes: What that commit removes: ``rows`` with ``_source_version`` at or after ``from_version``, or ``all``
            (of a sink with ``scd=2`` the current rows are closed instead). ``None``: it is an append without rows.
        from_version: See ``removes``.
        is_forced: Whether rows are removed although others may have written to the sink.
        closed_at_ms: With ``all`` and ``scd=2``: until when the rows held, milliseconds since the epoch; ``None``: now.
        keeps_position: Whether the epoch goes on in this sink where the one before it was. Rows that others took out
            before the fence are then not read again.
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

    @property
    def txn_app_id(self) -> str:
        """The transaction application id of the stream, or of one write of its function."""
        return txn_app_id(self.uuid, write=self.write)

    @property
    def txn_version(self) -> int:
        """The transaction version of the fence."""
        return fence_version(self.epoch)


@dataclass(frozen=True)
class JobSpec:
    """What one Spark application has to do: batches in order, into one sink, or one fence.

    Attributes:
        batches: The batches, in the order in which they must be committed; none with ``fence``.
        sink: The sink as its own ``to_dict()`` (``sinks/``).
        sink_table_id: ``metaData.id`` the sink must have, ``None`` if no batch was ever committed to it.
        sink_version: Version of the sink that holds the stream's last commit, ``None`` if there is none.
        reports: URI of the folder into which the attempt reports go.
        attempt_id: Name of this attempt, unique within the stream.
        verify_only: Look every batch up in the sink and report; write nothing.
        stop_after_ms: Do not start another batch after this time (milliseconds since the epoch), ``None``: no limit.
        fence: What to close in the sink, ``None``: nothing.
        tables: Of a function: version that each named table must have at least, because the stream has written it.
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

    def to_json(self) -> bytes:
        """Return the spec as JSON."""
        return _to_json(self, leave_out=() if self.tables else ("tables",))

    @classmethod
    def from_json(cls, text: "str | bytes") -> "JobSpec":
        """Read a spec. Raises ``ValueError`` on another format."""
        spec = _from_json(cls, text, "the job spec")
        batches = tuple(_checked(BatchSpec, b, "a batch of the job spec") for b in spec.batches)
        batches = tuple(replace(b, more_manifests=tuple(b.more_manifests)) for b in batches)
        fence = None if spec.fence is None else _checked(FenceSpec, spec.fence, "the fence of the job spec")
        return cls(**{**spec.__dict__, "batches": batches, "fence": fence})

    @classmethod
    def from_file(cls, uri: str, data: bytes) -> "JobSpec":
        """Read the spec at ``uri``, whose name says what its bytes must be (:func:`job_name`).

        The job does what its spec says: it calls functions and writes tables. So it takes no other spec than the one
        that the caller has written, whoever can write to the folder.

        Raises:
            SpecChangedError: The name has no digest, or the bytes have another one.
            ValueError: Another format.
        """
        named = _JOB_DIGEST.search(uri)
        if named is None:
            raise SpecChangedError(
                f"{uri} does not say in its name which SHA-256 the spec has: expected <attempt>-<sha256>.job.json"
            )
        found = hashlib.sha256(data).hexdigest()
        if found != named[1]:
            raise SpecChangedError(
                f"{uri} has the SHA-256 {found}: it was changed after it was written. Nothing was run; a retry writes "
                "a new spec. Find out who else can write to the folder"
            )
        return cls.from_json(data)


@dataclass(frozen=True)
class AttemptReport:
    """What one attempt says of one batch. It decides nothing: the ledger does.

    Attributes:
        outcome: One of :data:`OUTCOMES`.
        sink_version: Version of the sink that holds the batch.
        sink_table_id: ``metaData.id`` of the sink.
        rows_planned: Rows of the batch by the statistics of the source's log, ``None`` if a file has none.
        rows_read: Rows of the batch: as many as planned; else as many as were written, if the sink writes every row
            as it is; else ``None``, since counting them would read them once more.
        rows_written: Rows that the sink's commit brought (``numOutputRows``; of a merge those that it changed).
        files_written: Data files of that commit.
        bytes_written: Bytes of these files.
        error_class: Class of the exception, for ``failed``.
        error_message: Its text, shortened.
        retryable: Whether another attempt may succeed.
        seconds: Wall-clock seconds by phase: ``look`` (into the sink, whether the batch is there), ``load`` (the
            manifest), ``write`` (read and write the rows), ``verify`` (find the commit in the sink), and ``total``.
        settings: Settings of Spark that rows depend on, as they were in force.
        warnings: What a person should know of the sink, such as rows that another writer took out.
        tables: Of a function: version of each named table that holds the newest transaction of the write.
    """

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

    @property
    def is_done(self) -> bool:
        """Whether the sink has the batch and the row count agrees."""
        return self.outcome in ("written", "verified")

    def is_of(self, batch: BatchSpec, attempt_id: str) -> bool:
        """Whether this is about the batch and the attempt, and not a copy of another report."""
        mine = (self.uuid, self.epoch, self.batch_id, self.manifest_digest, self.attempt_id)
        return mine == (batch.uuid, batch.epoch, batch.batch_id, batch.manifest_digest, attempt_id)

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return _to_json(self, leave_out=tuple(name for name in ("warnings", "tables") if not getattr(self, name)))

    @classmethod
    def from_json(cls, text: "str | bytes") -> "AttemptReport":
        """Read a report. Raises ``ValueError`` on another format."""
        report = _from_json(cls, text, "the attempt report")
        return cls(**{**report.__dict__, "warnings": tuple(report.warnings)})


@dataclass(frozen=True)
class LandedBatch:
    """A batch of an older epoch that the sink has, as its commit says: ``end`` is inclusive, offset JSON."""

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
        sink_version: The commit that removed rows.
        what: As in :class:`FenceSpec`; ``None`` for a statement that a person typed, which does not say it.
        from_version: As in :class:`FenceSpec`; of a statement that was typed, if its condition is that and no other.
        rows: Rows that a statement which was typed removed, ``None`` if it does not say.
        is_all: Whether such a statement had no condition.
    """

    epoch: int
    sink_version: int
    what: Optional[str] = None
    from_version: Optional[int] = None
    rows: Optional[int] = None
    is_all: bool = False


@dataclass(frozen=True)
class FenceEvidence:
    """What the sink's log says of the stream before a fence.

    Attributes:
        newest: Newest transaction of the stream, ``None`` if there is none. It outlives its commit.
        is_cut: Whether log cleanup took commits since the stream's last known one, so that batches may be missing
            among those that landed.
        broken_at: The RESTORE, REPLACE or CLONE that took out what the stream had committed, or may have;
            ``None`` if there was none.
        removed: What this fence and those of earlier epochs removed since the stream's last known commit, oldest first.
        restored_to: The version, before the stream's last known commit, to which a RESTORE at ``broken_at`` put the
            sink back; ``None`` if there was none, or it does not say.
    """

    newest: Optional[int] = None
    is_cut: bool = False
    broken_at: Optional[int] = None
    removed: Tuple[RemovedRows, ...] = ()
    restored_to: Optional[int] = None


@dataclass(frozen=True)
class FenceReport:
    """What one attempt says of a fence.

    Attributes:
        outcome: One of :data:`FENCE_OUTCOMES`.
        sink_version: Version of the sink that holds the fence.
        sink_table_id: ``metaData.id`` of the sink.
        landed: Batches of older epochs in the sink since the stream's last known commit, oldest first; those that a
            later RESTORE or REPLACE, or the fence itself, took away are left out.
        retryable: Whether another attempt may succeed.
        writes: Of a function: names of the writes whose tables hold the fence; the tables of the others are missing.
        has_removed: Whether the fence removed what it was to remove; true if that was nothing.
        removed_rows: Rows that it removed or closed, ``None`` if the commit does not say.
        evidence: What the sink's log says of what was there before; ``None`` of the tables of a function.
        warnings: What a person should know of the sink, such as rows that another writer took out.
    """

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
    has_removed: bool = True
    removed_rows: Optional[int] = None
    evidence: Optional[FenceEvidence] = None
    warnings: Tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return _to_json(self, leave_out=() if self.warnings else ("warnings",))

    @classmethod
    def from_json(cls, text: "str | bytes") -> "FenceReport":
        """Read a report. Raises ``ValueError`` on another format."""
        report = _from_json(cls, text, "the fence report")
        landed = tuple(_checked(LandedBatch, b, "a batch of the fence report") for b in report.landed)
        evidence = report.evidence
        if evidence is not None:
            evidence = _checked(FenceEvidence, evidence, "the evidence of the fence report")
            removed = tuple(_checked(RemovedRows, one, "a removal of the fence report") for one in evidence.removed)
            evidence = replace(evidence, removed=removed)
        texts = {"writes": tuple(report.writes), "warnings": tuple(report.warnings)}
        return cls(**{**report.__dict__, **texts, "landed": landed, "evidence": evidence})


def job_name(attempt_id: str, data: bytes) -> str:
    """Return the file name of a job spec, ``<attempt>-<SHA-256 of its bytes>.job.json``: the URI binds the content."""
    return f"{attempt_id}-{hashlib.sha256(data).hexdigest()}.job.json"


def fence_report_name(epoch: int, attempt_id: str) -> str:
    """Return the name of a fence's report below :attr:`JobSpec.reports`: ``<epoch>/fence/<attempt>.json``."""
    return f"{epoch}/fence/{attempt_id}.json"


def report_name(epoch: int, batch_id: int, attempt_id: str) -> str:
    """Return the name of an attempt report below :attr:`JobSpec.reports`: ``<epoch>/<batch>/<attempt>.json``."""
    return f"{epoch}/{batch_id}/{attempt_id}.json"


def started_name(epoch: int, batch_id: int, attempt_id: str) -> str:
    """Return the name of the marker that an attempt leaves before it touches the sink."""
    return f"{epoch}/{batch_id}/{attempt_id}.started.json"


def commit_metadata(
    batch: BatchSpec, attempt_id: str, settings: Dict[str, str], sink_kind: str = "delta_append"
) -> str:
    """Return the ``userMetadata`` of the batch's commit in the sink, JSON on one line."""
    return json.dumps(
        {
            "fds": SPEC_FORMAT,
            "stream": batch.stream,
            "uuid": batch.uuid,
            "epoch": batch.epoch,
            "batch_id": batch.batch_id,
            "start": batch.start,
            "end": batch.end,
            "after": batch.after,
            "digest": batch.manifest_digest,
            "attempt": attempt_id,
            "settings": settings,
            **({} if batch.interval is None else {"interval": batch.interval}),
            **({} if sink_kind == "delta_append" else {"sink": sink_kind}),
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def removal_metadata(fence: FenceSpec) -> Optional[Dict[str, Any]]:
    """Return what a fence's commit says of the rows that it removes, ``None`` if it removes none."""
    if fence.removes is None:
        return None
    return {"what": fence.removes, "from_version": fence.from_version}


def fence_metadata(
    fence: FenceSpec, attempt_id: str, removed_to: Optional[int] = None, newest: Optional[int] = None
) -> str:
    """Return the ``userMetadata`` of a fence's commit in the sink, JSON on one line.

    Args:
        fence: The fence.
        attempt_id: The attempt that writes it.
        removed_to: Where there was nothing to be removed: newest version of the sink (inclusive) that was looked at.
            ``None``: the commit itself removes rows, or it is not asked to.
        newest: Newest transaction of the stream before it, where only a log checkpoint says it.
    """
    removal = removal_metadata(fence)
    if removal is not None and removed_to is not None:
        removal["to"] = removed_to
    return json.dumps(
        {
            "fds": SPEC_FORMAT,
            "stream": fence.stream,
            "uuid": fence.uuid,
            "epoch": fence.epoch,
            "fence": fence.txn_version,
            "attempt": attempt_id,
            **({} if removal is None else {"removes": removal}),
            **({} if newest is None else {"newest": newest}),
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def read_commit_metadata(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return the ``userMetadata`` of a commit that FDS made, ``None`` for any other text.

    Whoever writes to the sink may write anything there, so a text that lacks a field, or has one of another type, is
    none of FDS's.
    """
    value = _object_of(text, "fds")
    if value is None or not _has_fields(value, _OF_A_FENCE if "fence" in value else _OF_A_BATCH):
        return None
    newest = value.get("newest", 0)
    if type(newest) is not int or not 0 <= newest < 1 << 63:
        return None
    if not isinstance(value.get("interval", ""), str) or not isinstance(value.get("sink", ""), str):
        return None
    return value


def write_metadata(batch: BatchSpec, write: str) -> str:
    """Return the ``userMetadata`` of a write that a function of the user's makes, JSON on one line.

    The table is not a sink of FDS, so this is not what :func:`read_commit_metadata` reads.
    """
    return json.dumps(
        {
            "fds_write": SPEC_FORMAT,
            "stream": batch.stream,
            "uuid": batch.uuid,
            "epoch": batch.epoch,
            "batch_id": batch.batch_id,
            "digest": batch.manifest_digest,
            "write": write,
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def read_write_metadata(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return the ``userMetadata`` of a write of a function, ``None`` for any other text."""
    value = _object_of(text, "fds_write")
    return value if value is not None and _has_fields(value, _OF_A_WRITE) else None


def _object_of(text: Optional[str], marker: str) -> Optional[Dict[str, Any]]:
    """Return the JSON object in a text if its ``marker`` is the format of this version, else ``None``."""
    if not text or not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get(marker) != SPEC_FORMAT or isinstance(value[marker], bool):
        return None
    return value


def _has_fields(value: Dict[str, Any], wanted: Dict[str, type]) -> bool:
    for name, kind in wanted.items():
        found = value.get(name)
        if type(found) is not kind or (isinstance(found, int) and not 0 <= found < 1 << 63):
            return False
    return True


__all__: List[str] = [
    "FENCE_OUTCOMES",
    "OUTCOMES",
    "SPEC_FORMAT",
    "AttemptReport",
    "BatchSpec",
    "FenceEvidence",
    "FenceReport",
    "FenceSpec",
    "JobSpec",
    "LandedBatch",
    "RemovedRows",
    "SpecChangedError",
    "commit_metadata",
    "fence_metadata",
    "fence_report_name",
    "fence_version",
    "job_name",
    "read_commit_metadata",
    "read_write_metadata",
    "removal_metadata",
    "report_name",
    "started_name",
    "txn_app_id",
    "txn_version",
    "write_metadata",
]
