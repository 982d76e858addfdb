"""All errors that FDS raises on purpose.

One root, few leaves. A message says what happened, to which table and version, what was expected, and what to do
next; the same facts are attributes. Whether a retry can help is a property of the class (``retryable``), and the
Airflow operators obey it: an error that is not retryable fails the task without a retry. What went wrong has a stable
name, ``reason_code``: the class has one, and a place that raises the error may give a more precise one.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, TypedDict, Unpack

from airflow_provider_fds.reasons import Reason

EXIT_OK: Final = 0
#: `fds status`: a stream needs attention, or lags.
EXIT_ATTENTION: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_STOPPED: Final = 3
EXIT_LOST_POSITION: Final = 4
EXIT_STORAGE: Final = 5
EXIT_BATCH_FAILED: Final = 6


class Facts(TypedDict, total=False):
    """What every error may say about itself; see the attributes of :class:`FdsError`."""

    table: str | None
    version: int | None
    operation: str | None
    reason: Reason | None


class FdsError(Exception):
    """Root of all errors of FDS.

    Attributes:
        table: URI of the source table, if the error concerns one.
        version: Version of that table, if the error concerns one; of a failed batch, the first version it reads.
        operation: ``commitInfo.operation`` of that version with its parameters, if the error is about that commit.
        reason_code: What went wrong, one of :class:`~.reasons.Reason`; stable across versions of FDS.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    #: The reason, unless the place that raises the error gives a more precise one.
    reason: ClassVar[Reason] = Reason.INTERNAL_ERROR

    def __init__(self, message: str, **facts: Unpack[Facts]) -> None:
        super().__init__(message)
        self.table = facts.get("table")
        self.version = facts.get("version")
        self.operation = facts.get("operation")
        self.reason_code = str(facts.get("reason") or self.reason)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make a copy: the arguments of a subclass differ from those of ``Exception``."""
        return _copy, (type(self), self.args, self.__dict__)

    def facts(self) -> dict[str, Any]:
        """Return ``reason_code``, ``table``, ``version`` and ``operation``, as they are reported outside of Python."""
        return {
            "reason_code": self.reason_code,
            "table": self.table,
            "version": self.version,
            "operation": self.operation,
        }

    def describe_facts(self) -> str:
        """Return the facts that are known on one line: ``reason_code=… table=… version=… operation=…``."""
        return " ".join(f"{name}={value}" for name, value in self.facts().items() if value is not None)


def _copy(kind: type[FdsError], args: tuple[Any, ...], attributes: dict[str, Any]) -> FdsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class ConfigurationError(FdsError):
    """The request cannot work: an invalid option, name or wiring, or a missing connection.

    Attributes:
        problems: All problems found, each a full sentence.
    """

    exit_code = EXIT_CONFIGURATION
    reason = Reason.INVALID_CONFIGURATION

    def __init__(self, *problems: str, subject: str = "configuration", **facts: Unpack[Facts]) -> None:
        self.problems = tuple(problems)
        if len(problems) == 1:
            text = problems[0]
        else:
            text = f"{len(problems)} problems in the {subject}:\n" + "\n".join(f"  - {p}" for p in problems)
        super().__init__(text, **facts)


class TableNotFoundError(ConfigurationError):
    """There is no Delta table at the URI: nothing exists, a folder has no ``_delta_log``, or the log is empty."""

    reason = Reason.TABLE_NOT_FOUND


class UnsupportedFeatureError(FdsError):
    """The table uses a reader feature that FDS does not support.

    Attributes:
        features: Names of the features as the protocol action lists them.
    """

    reason = Reason.TABLE_FEATURE_UNSUPPORTED
    exit_code = EXIT_CONFIGURATION

    def __init__(self, message: str, *, features: tuple[str, ...], **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.features = features


class StorageError(FdsError):
    """Storage did not answer, refused, or returned an incomplete answer. A later attempt may succeed."""

    reason = Reason.STORAGE_FAILED
    retryable = True
    exit_code = EXIT_STORAGE


class AccessDeniedError(StorageError):
    """Storage refused the credentials; a retry with the same credentials does not help."""

    reason = Reason.ACCESS_DENIED
    retryable = False


class RequestRefusedError(StorageError):
    """Storage refused the request itself (no such bucket, wrong region or endpoint); a retry would be refused again."""

    reason = Reason.REQUEST_REFUSED
    retryable = False


class TornFileError(StorageError):
    """A log file is empty or truncated: a store without atomic writes is still writing it, or it is damaged."""

    reason = Reason.LOG_FILE_INCOMPLETE


class LostPositionError(FdsError):
    """The table no longer has the stream's position: the stream has lost rows.

    Attributes:
        earliest_version: Oldest version that can still be read, if known.
    """

    reason = Reason.POSITION_LOST
    exit_code = EXIT_LOST_POSITION

    def __init__(self, message: str, *, earliest_version: int | None = None, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.earliest_version = earliest_version


class LogTruncatedError(LostPositionError):
    """Log cleanup has removed the next version."""

    reason = Reason.LOG_TRUNCATED


class LogGapError(LostPositionError):
    """A version in the middle of the log is missing."""

    reason = Reason.LOG_GAP


class LogRewoundError(LostPositionError):
    """The newest version is older than the position: a copy was restored or the newest versions were removed."""

    reason = Reason.LOG_REWOUND


class TableReplacedError(LostPositionError):
    """The URI now points to a different table.

    The table id, or the content of the last consumed commit, has changed.
    """

    reason = Reason.TABLE_REPLACED


class StoppedError(FdsError):
    """The stream stops before a version that its options do not let it pass; everything before it was delivered.

    Attributes:
        way_on: The decision that lets the stream pass the version: ``accept`` its schema, or ``skip`` its rows.
    """

    reason = Reason.SOURCE_LOG_DAMAGED
    exit_code = EXIT_STOPPED
    way_on: Literal["accept", "skip"] | None = None


class ViolationError(StoppedError):
    """A commit deletes or changes rows, and the options do not say what to do with such a commit."""

    way_on = "skip"
    reason = Reason.SOURCE_ROWS_DELETED


class SchemaChangedError(StoppedError):
    """The table's schema changed in a way that is not purely additive."""

    reason = Reason.SCHEMA_CHANGED
    way_on: Literal["accept", "skip"] | None = "accept"


class LedgerError(FdsError):
    """The ledger of a stream refuses an entry: the stream's current state does not allow it."""

    reason = Reason.LEDGER_REFUSED
    exit_code = EXIT_CONFIGURATION


class UnreadableEntryError(LedgerError):
    """An entry of the ledger is damaged, missing, or written by a version of FDS that this version does not know.

    Attributes:
        n: Number of the entry, -1 if unknown.
        data: Its bytes, empty if it is missing.
        is_newer: Whether a newer FDS wrote it: it is then valid there, and must not be given up.
    """

    reason = Reason.LEDGER_UNREADABLE

    def __init__(
        self, message: str, *, n: int = -1, data: bytes = b"", is_newer: bool = False, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.n = n
        self.data = data
        self.is_newer = is_newer


class CheckpointError(LedgerError):
    """Checkpoint and ledger disagree.

    The checkpoint was edited, belongs to something else or is ahead of the ledger, or the ledger is gone.

    Attributes:
        can_be_discarded: Whether only the checkpoint is wrong, so that discarding it loses nothing.
    """

    reason = Reason.CHECKPOINT_MISMATCH

    def __init__(self, message: str, *, can_be_discarded: bool = False, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.can_be_discarded = can_be_discarded


class StreamBusyError(LedgerError):
    """Another run owns the next batches, and is still running.

    Attributes:
        owner: Description of the run that owns them.
    """

    reason = Reason.STREAM_BUSY
    retryable = True

    def __init__(self, message: str, *, owner: str, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.owner = owner


class SinkError(FdsError):
    """The sink is not the one that the stream is bound to, or another writer used this stream's name."""

    reason = Reason.SINK_NOT_BOUND
    exit_code = EXIT_CONFIGURATION


class BatchFailedError(FdsError):
    """Spark did not finish a batch. Nothing is committed; a retry works on exactly the same rows.

    Attributes:
        error_class: Class of the driver's exception; ``None`` if the driver left no report.
    """

    reason = Reason.BATCH_FAILED
    retryable = True
    exit_code = EXIT_BATCH_FAILED

    def __init__(self, message: str, *, error_class: str | None = None, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.error_class = error_class


class BatchRejectedError(BatchFailedError):
    """Spark failed with an error that the same rows would cause again: a retry does not help."""

    reason = Reason.BATCH_REJECTED
    retryable = False


class SourceFilesGoneError(BatchRejectedError):
    """Files of the source that a planned batch lists are gone: VACUUM or a person removed them after planning.

    Raised only if the file is missing as seen from Airflow too, which reads the table's storage itself.
    Nothing of the batch is in the sink. The batch stays planned: once the files are back, the next run loads it.
    """

    reason = Reason.SOURCE_FILES_GONE


class SchemaMismatchError(BatchRejectedError):
    """The rows of a batch do not fit the columns of the sink. Nothing of the batch is in the sink."""

    reason = Reason.SINK_SCHEMA_MISMATCH


class UserFunctionError(BatchRejectedError):
    """A user function cannot be called, or fails on a batch and would fail again. The message says where."""

    reason = Reason.USER_FUNCTION_FAILED


class ConcurrentWriteError(BatchFailedError):
    """Another writer committed to the sink at the same moment; a retry checks which rows are there."""

    reason = Reason.CONCURRENT_WRITE


class SparkMemoryError(BatchFailedError):
    """Spark ran out of memory on a batch."""

    reason = Reason.SPARK_OUT_OF_MEMORY


class ServerLostError(BatchFailedError):
    """A Spark Connect server does not answer, or stopped in the middle of a batch."""

    reason = Reason.SPARK_CONNECT_LOST


class ClusterLostError(BatchFailedError):
    """The cluster that should run the driver does not start it, or has not reported its state for a long time."""

    reason = Reason.SPARK_CLUSTER_LOST


class SessionEndedError(BatchFailedError):
    """The session, or the operation in it, was ended on the Spark Connect server in the middle of a batch.

    The task was killed, a later attempt took over, or the server ends sessions that run this long.
    """

    reason = Reason.SPARK_SESSION_ENDED


class EpochOvertakenError(BatchFailedError):
    """The sink already has a later epoch of the stream; a retry reads the ledger again and works on that one."""

    reason = Reason.EPOCH_OVERTAKEN


class BatchNotCommittedError(BatchFailedError):
    """A job that only checks the sink did not find the batch there; the next job loads it."""

    reason = Reason.BATCH_NOT_COMMITTED


class FleetFailedError(FdsError):
    """Streams of a fleet failed, and a retry may help at least one of them. The other streams are not affected.

    Attributes:
        streams: Names of the streams that failed.
    """

    reason = Reason.STREAMS_FAILED
    retryable = True
    exit_code = EXIT_BATCH_FAILED

    def __init__(self, message: str, *, streams: tuple[str, ...], **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.streams = streams


class FleetRejectedError(FleetFailedError):
    """Streams of a fleet failed, and a retry would meet the same errors again."""

    reason = Reason.STREAMS_REJECTED
    retryable = False


class VerificationError(FdsError):
    """The rows that Spark wrote do not match the plan. The batch is blocked until a person decides."""

    reason = Reason.ROWS_NOT_VERIFIED
    exit_code = EXIT_BATCH_FAILED
