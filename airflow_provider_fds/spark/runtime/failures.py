"""Why a batch failed: turns exceptions of Python, py4j and the JVM into an error class, a message, and "retry or not".

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import List, Optional

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.exception_chain import Cause, causes_of, first_line, java_exception
from airflow_provider_fds.spark.runtime.versions import DELTA_OF_SPARK, delta_coordinates, of_minor

_MESSAGE_CHARS = 1500

#: Another writer committed at the same moment: check the sink again before deciding.
_CONFLICTS = re.compile(
    r"DELTA_CONCURRENT_|DELTA_PROTOCOL_CHANGED|DELTA_METADATA_CHANGED|DELTA_PATH_EXISTS|"
    r"Concurrent(Transaction|Append|Write|DeleteRead|DeleteDelete)Exception|ProtocolChangedException|"
    r"MetadataChangedException"
)

#: Conditions that recur with the same rows, the same sink and the same settings.
_LASTING = re.compile(
    r"^(FAILED_READ_FILE\.(FILE_NOT_EXIST|PARQUET_COLUMN_DATA_TYPE_MISMATCH|CANNOT_READ_FILE_FOOTER)|"
    r"PATH_NOT_FOUND|UNRESOLVED_COLUMN|COLUMN_ALREADY_EXISTS|DATA_SOURCE_NOT_FOUND|INSERT_COLUMN|"
    r"DELTA_(FAILED_TO_MERGE|MERGE_INCOMPATIBLE|SCHEMA|METADATA_MISMATCH|UNSUPPORTED|INVALID|NOT_NULL|VIOLATE|"
    r"COLUMN|MISSING|TABLE_|CANNOT|FEATURES|ILLEGAL|DATA_CHANGE_FALSE|PATH_BASED|NESTED|CHECK_CONSTRAINT|"
    r"EXCEED_CHAR_VARCHAR|GENERATED|IDENTITY|DUPLICATE|EMPTY_DATA|PARTITION|VERSION_INVALID))"
)
_CONSTRAINT = re.compile(r"^DELTA_(NOT_NULL|VIOLATE_CONSTRAINT|CHECK_CONSTRAINT|EXCEED_CHAR_VARCHAR)")
_FILE_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"
_DAMAGED_FILE = re.compile(r"is not a Parquet file|Expected magic number|CANNOT_READ_FILE_FOOTER", re.IGNORECASE)
_REFUSED_ACCESS = re.compile(r"AccessDenied|AccessControlException|Permission denied|status code: 403", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"java\.lang\.OutOfMemoryError|Java heap space|GC overhead limit exceeded|UNABLE_TO_ACQUIRE_MEMORY|"
    r"exceeding (?:physical |virtual )?memory limits|OOMKilled|[Ee]xit (?:code|status)[: ]+(?:137|143|52)\b"
)
#: Messages of a Spark Connect client that another thread has closed because its task is being killed.
_CLIENT_CLOSED = re.compile(
    r"^SparkConnectException .*No active Spark session found|Channel closed!|Cannot invoke RPC on closed channel"
)
#: Code that was compiled against another version than the one at run time.
_LINKAGE = re.compile(
    r"\.(NoSuchMethodError|NoSuchFieldError|NoClassDefFoundError|AbstractMethodError|IncompatibleClassChangeError|"
    r"IllegalAccessError|VerifyError|UnsupportedClassVersionError)$"
)
#: A Spark without Delta: its settings name classes of Delta, or its readers know no such format.
_NO_DELTA = re.compile(
    r"ClassNotFoundException: (?:\S+: )*(?:org\.apache\.spark\.sql\.delta|io\.delta)\.|"
    r"Cannot find catalog plugin class for catalog '?\w+'?: org\.apache\.spark\.sql\.delta\.|"
    r"[Ff]ailed to find (?:the )?data source: delta\b"
)
_CONSTRAINT_ADVICE = (
    ". This write added no row. Change the constraint of the sink and run the stream again, or leave such rows out: "
    "give the stream a `where`, then `fds replan STREAM --why …`"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
#: Python errors that recur with the same rows; others (network, disk) may pass.
_LASTING_IN_PYTHON = re.compile(
    r"(?:Value|Type|Lookup|Key|Index|Attribute|Name|Assertion|ZeroDivision|Import|ModuleNotFound|NotImplemented|Unicode\w*|"
    r"Syntax|Arithmetic|Overflow|UnboundLocal)Error$"
)
_NOT_OF_THE_USER = (
    "/airflow_provider_fds/",
    "/pyspark/",
    "/pyspark.zip/",
    "/py4j",
    "/grpc/",
    "/grpcio/",
    "<frozen",
    "<string>",
)
_NOT_FROM_A_FUNCTION = ("pyspark.", "py4j.", "airflow_provider_fds.")
_MISSING_FILE = re.compile(r"(?:File|path:?) ((?:[\w+.-]+:)?/.*?) does not exist|No such file or directory: (\S+)")


class RefusalError(Exception):
    """A problem that FDS itself found with a batch or its sink.

    Attributes:
        reason: What it is.
        retryable: Whether the same batch may succeed later.
    """

    def __init__(self, reason: Reason, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.retryable = retryable


@dataclass(frozen=True)
class Failure:
    """An exception in the terms of an attempt report.

    Attributes:
        error_class: A :class:`Reason` for what FDS itself finds; otherwise the condition or the class of the exception.
        message: Its text.
        retryable: Whether the same batch may succeed later.
    """

    error_class: str
    message: str
    retryable: bool

    @property
    def reason(self) -> Optional[Reason]:
        """The reason, ``None`` for an exception of Spark, Delta or Python."""
        return self.error_class if isinstance(self.error_class, Reason) else None


def is_conflict(error: BaseException) -> bool:
    """Whether the write lost against another one, so that the sink must be checked for the batch."""
    return any(_CONFLICTS.search(cause.name + " " + cause.text) for cause in causes_of(error))


def has_condition(error: BaseException, *conditions: str) -> bool:
    """Whether one of the error conditions of Spark or Delta occurs in the chain of causes."""
    return any(cause.condition in conditions for cause in causes_of(error))


def explain(error: BaseException) -> Failure:
    """Return class, shortened message and retryability of an exception on the driver.

    The innermost Spark or Delta condition names the failure; the outer ones are the layers it came through. A failure
    is retryable unless known otherwise: a retry works on exactly the same rows.
    """
    if isinstance(error, RefusalError):
        return Failure(error.reason, shortened(str(error)), error.retryable)
    chain = causes_of(error)
    named = [cause for cause in chain if cause.condition]
    cause = named[-1] if named else chain[-1]
    name = (cause.condition if named else None) or cause.name.rsplit(".", 1)[-1]
    everything = "\n".join(f"{c.name}: {c.text}" for c in chain)
    # Spark 3.5 has no such condition; there the class of the exception tells
    if name == _FILE_GONE or any(c.name.endswith("SparkFileNotFoundException") for c in chain):
        return Failure(_FILE_GONE, _file_not_found(everything), retryable=False)
    known = (
        # first: a closed client also raises beneath a user's function
        _session_ended(chain[0], name)
        or _user_function(error, everything)
        or _of_the_jvm(chain, everything)
        or _of_the_server(error, chain[0], name)
    )
    if known is not None:
        return known
    if is_conflict(error):
        return Failure(name, _another_writer(name), retryable=True)
    if name.startswith(("FAILED_READ_FILE", "TASK_WRITE_FAILED")) and _DAMAGED_FILE.search(everything):
        text = (
            f"a data file of the batch is damaged, so Spark cannot read it ({first_line(cause.text)}). Restore the file"
        )
        return Failure(name, shortened(text), retryable=False)
    # an AnalysisException concerns the query itself, before any task runs
    lasting = (
        _LASTING.match(name) is not None
        or any(c.name.endswith("AnalysisException") for c in chain)
        or _REFUSED_ACCESS.search(everything) is not None
    )
    words = first_line(cause.text)
    inner = chain[-1]
    if inner is not cause and inner.text and first_line(inner.text) not in words:
        words += f" (caused by {inner.name.rsplit('.', 1)[-1]}: {first_line(inner.text)})"
    if _CONSTRAINT.match(name):
        words = words.rstrip(" .") + _CONSTRAINT_ADVICE
    return Failure(name, shortened(words or cause.name), retryable=not lasting)


def shortened(text: str) -> str:
    """Return the text for a report: truncated, and without anything that looks like a credential."""
    text = redacted(text)
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + "…"


def _file_not_found(everything: str) -> str:
    found = _MISSING_FILE.search(everything)
    which = f" ({found.group(1) or found.group(2)})" if found else ""
    return shortened(f"Spark does not find a data file{which}, and nothing was written")


def _of_the_jvm(chain: List[Cause], everything: str) -> Optional[Failure]:
    """Return the failure of a JVM without memory, without Delta or with incompatible classes, else ``None``."""
    if _OUT_OF_MEMORY.search(everything):
        return Failure(Reason.SPARK_OUT_OF_MEMORY, _out_of_memory(everything), retryable=True)
    if _NO_DELTA.search(everything):
        return Failure(Reason.SPARK_VERSION_MISMATCH, _no_delta(), retryable=False)
    unlinked = next((cause for cause in chain if _LINKAGE.search(cause.name)), None)
    return None if unlinked is None else Failure(Reason.SPARK_VERSION_MISMATCH, _unlinked(unlinked), retryable=False)


def _no_delta() -> str:
    spark, coordinates = "this Spark", "the Delta that was built for it"
    with suppress(ImportError):
        from pyspark import __version__ as version

        spark = f"this Spark ({version})"
        if (delta := DELTA_OF_SPARK.get(of_minor(version))) is not None:
            scala = "2.12" if of_minor(version) == "3.5" else "2.13"
            coordinates = delta_coordinates(version, scala, delta)
    return (
        f"{spark} has no Delta but needs {coordinates}. Omit delta_version='provided' to let FDS add it, or add "
        "it to that Spark (packages, jars, or its jars folder). Nothing was written"
    )


def _unlinked(cause: Cause) -> str:
    return shortened(
        "JARs of the job were built for another version of Spark, Scala or Delta "
        f"({cause.name.rsplit('.', 1)[-1]}: {first_line(cause.text)}). Remove unneeded JARs from packages, jars "
        "and the class path, and choose the others for the Spark that runs; with Spark Connect, that of the server"
    )


def _another_writer(name: str) -> str:
    # Delta's message mentions two streaming queries that share a checkpoint, which does not apply here
    return (
        f"another writer committed to the sink at the same moment ({name}), most likely an earlier attempt of "
        "this stream that is still running; this attempt wrote nothing. A retry finds out which rows the sink has"
    )


def _user_function(error: BaseException, everything: str) -> Optional[Failure]:
    """Return the failure of a user's Python function, on the driver or in a worker, or ``None`` if it is not one."""
    if "org.apache.spark.api.python.PythonException" in everything or "from the Python worker" in everything:
        found = [frame for frame in _FRAME.findall(everything) if not _is_foreign(frame[0])]
        said = re.findall(r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*)$", everything, re.MULTILINE)
        said = [line for line in said if "org.apache.spark" not in line and "pyspark." not in line]
        if not found or not said:
            return None
        file, line, function = found[-1]
        return _function_failed(file, line, function, said[-1])
    if java_exception(error) is not None or type(error).__module__.startswith(_NOT_FROM_A_FUNCTION):
        return None
    frame = users_frame(error)
    if frame is None:
        return None
    text = f"{type(error).__name__}: {error}"
    return _function_failed(frame.filename, str(frame.lineno), frame.name, text, lasting=is_bug(error))


def users_frame(error: BaseException) -> Optional[traceback.FrameSummary]:
    """Return the innermost frame of user code that an exception passed through, or ``None``."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_foreign(frame.filename)]
    return frames[-1] if frames else None


def is_bug(error: BaseException) -> bool:
    """Whether a Python exception is of a kind that recurs with the same code and the same rows."""
    return any(_LASTING_IN_PYTHON.search(kind.__name__) for kind in type(error).__mro__)


def _function_failed(file: str, line: str, function: str, said: str, lasting: Optional[bool] = None) -> Failure:
    if lasting is None:
        name = said.split(":", 1)[0].strip().rsplit(".", 1)[-1]
        lasting = _LASTING_IN_PYTHON.search(name) is not None
    text = f"the function {function} failed at line {line} of {file}: {said.strip()}"
    if lasting:
        text += ". The same rows would cause the same error again: correct the function"
    reason = Reason.USER_FUNCTION_FAILED if lasting else Reason.USER_FUNCTION_INTERRUPTED
    return Failure(reason, shortened(text), retryable=not lasting)


def _is_foreign(file: str) -> bool:
    """Whether a Python file belongs to FDS, Spark or the standard library."""
    path = file.replace("\\", "/")
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    is_library = any(path.startswith(f"{library}/") for library in libraries) and "/site-packages/" not in path
    return is_library or any(part in path for part in _NOT_OF_THE_USER)


def _out_of_memory(everything: str) -> str:
    found = _OUT_OF_MEMORY.search(everything)
    said = first_line(everything[found.start() :]) if found else ""
    return shortened(
        f"Spark ran out of memory ({said}). Give it more (driver_memory, executor_memory; with Spark Connect, on "
        "the server), or plan smaller batches (max_bytes_per_batch, max_files_per_batch; they apply to batches "
        "that are not planned yet). This attempt committed nothing"
    )


def _of_the_server(error: BaseException, cause: Cause, name: str) -> Optional[Failure]:
    """Return the failure if a Spark Connect server, or the connection to it, caused it, else ``None``."""
    status = getattr(getattr(error, "_grpc_status_code", None), "name", None)
    if status is None and (found := re.search(r"StatusCode\.([A-Z_]+)", cause.text)):
        status = found.group(1)
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        text = (
            f"the Spark Connect server rejected the login ({_grpc_details(cause)}). The token is the password of "
            "the connection; on the command line it is SPARK_CONNECT_AUTHENTICATE_TOKEN"
        )
        return Failure(Reason.SPARK_CONNECT_REFUSED, text, retryable=False)
    if "Tls handshake failed" in cause.text:
        text = (
            f"the TLS handshake with the Spark Connect server failed ({_grpc_details(cause)}). A token is sent only "
            "over TLS, except to a server on localhost, and use_ssl requires TLS: put a proxy with a certificate in "
            "front of the server, or omit token and use_ssl"
        )
        return Failure(Reason.SPARK_CONNECT_REFUSED, text, retryable=False)
    if status == "UNKNOWN" and not _grpc_details(cause):
        text = (
            "the Spark Connect server ended the operation without a reason. Most likely, a run that took over "
            "stopped the operations of their shared session; a later attempt finds everything that this one "
            "wrote. A retry checks the sink and works on the same rows; if it fails like this again, check the "
            "server's log"
        )
        return Failure(Reason.SPARK_SESSION_ENDED, text, retryable=True)
    # nothing answers, or a new server that has no earlier session
    if status == "UNAVAILABLE" or name.startswith("INVALID_HANDLE."):
        return Failure(Reason.SPARK_CONNECT_LOST, _server_lost(cause), retryable=True)
    return None


def _session_ended(cause: Cause, name: str) -> Optional[Failure]:
    if name != "INVALID_HANDLE.SESSION_CLOSED" and not _CLIENT_CLOSED.search(f"{cause.name} {cause.text}"):
        return None
    text = (
        "the session on the Spark Connect server was ended in the middle of the batch: this task was killed, "
        "a later attempt took over, or the server ends sessions that run this long"
    )
    return Failure(Reason.SPARK_SESSION_ENDED, text, retryable=True)


def _server_lost(cause: Cause) -> str:
    return (
        f"the Spark Connect server was lost in the middle of the batch ({_grpc_details(cause)}): it stopped, was "
        "restarted, or can no longer be reached. Its write may still land; a retry checks the sink and works on "
        "the same rows"
    )


def _grpc_details(cause: Cause) -> str:
    found = re.search(r'details = "([^"\n]*)', cause.text)
    return shortened(found.group(1) if found else first_line(cause.text))
