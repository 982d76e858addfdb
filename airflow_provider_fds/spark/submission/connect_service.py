"""A Spark Connect server of this machine's Spark, as a child of this process. Does not import pyspark.

The only place that knows how such a server is started: ``fds connect-server``, the demo and the tests use it. Its
settings are ``SERVER_CONF`` in ``spark/runtime/settings.py``.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.runtime.connect_shortcuts import RELATION_CLASSES, SHORTCUTS
from airflow_provider_fds.spark.runtime.settings import SERVER_CONF
from airflow_provider_fds.spark.submission.launch import end_group, end_group_with, started
from airflow_provider_fds.spark.submission.object_store import JobStorage
from airflow_provider_fds.spark.submission.submit import SubmitArguments, submission, submit_arguments

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_fds.spark.installation.own_spark import OwnSpark

_LOOPBACK: Final = "127.0.0.1"
_DEFAULT_PORT: Final = 15002

_MAIN_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ADDRESS: Final = "spark.connect.grpc.binding.address"
_PORT: Final = "spark.connect.grpc.binding.port"
_TOKEN: Final = "spark.connect.authenticate.token"  # noqa: S105  # a name
_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # a name

#: Its file in Spark's folder ``jars``, and its package for a Spark that lacks it.
_SERVER_JAR: Final = "spark-connect_*.jar"
_SERVER_PACKAGE: Final = "org.apache.spark:spark-connect_"

#: What the server prints once it listens.
_LISTENS: Final = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_TAKEN: Final = re.compile(r"BindException|Address already in use")

_START_SECONDS: Final = 300.0
#: For what runs on it when it is asked to end.
_END_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2
_LAST_LINES: Final = 15


class ServerTakenError(SparkSetupError):
    """The address cannot be listened on: another process has the port, or this machine does not have the address."""


class ServerEndedError(SparkSetupError):
    """The server ended before it listened, or did not listen in time; the message has its last lines."""


@dataclass(frozen=True)
class RunningServer:
    """A Spark Connect server that accepts connections.

    Attributes:
        host: What clients call it.
        port: Its port.
        process: Its JVM, which leads a process group.
        last_lines: The newest lines of its log.
    """

    host: str
    port: int
    process: subprocess.Popen[str] = field(repr=False)
    last_lines: deque[str] = field(repr=False)

    @property
    def url(self) -> str:
        """``sc://host:port``, as clients take it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"sc://{host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of its JVM."""
        return self.process.pid

    def wait(self) -> int:
        """Wait until it ends; return its exit code."""
        return self.process.wait()


def server_arguments(
    *,
    bind: str = _LOOPBACK,
    port: int = _DEFAULT_PORT,
    master: str = "local[2]",
    conf: Mapping[str, Any] | None = None,
    own_spark: OwnSpark | None = None,
    delta_version: str | None = None,
    serves_s3: bool = False,
    cache_dir: Path | None = None,
) -> SubmitArguments:
    """Return the arguments of spark-submit for a Spark Connect server that can load batches.

    It gets the same Delta, settings and class archive as an application of FDS, and bounded caches. With S3, it also
    commits through FDS's log store. A Spark of the user's own is assumed to have an S3 file system.

    Args:
        bind: Address on which it listens.
        port: Its port; 0: a free one.
        master: Spark master URL.
        conf: The user's Spark settings; they take precedence over all but the forced ones.
        own_spark: The user's Spark; ``None``: the one that pip installed.
        delta_version: See :func:`~airflow_provider_fds.spark.submission.submit.submit_arguments`.
        serves_s3: Whether the bundled Spark gets an S3 file system, about 700 MB, and FDS's log store.
        cache_dir: For JARs; default :func:`~airflow_provider_fds.spark.installation.cache.default_cache_dir`.

    Raises:
        SparkSetupError: Spark cannot start here, has no server, or ``conf`` contradicts a forced setting or an
            argument.
    """
    own = dict(conf or {})
    if given := sorted({_ADDRESS, _PORT} & own.keys()):
        raise SparkSetupError(f"Spark setting {given[0]} is an argument of its own: give address and port there")
    home = bundled_spark_home() if own_spark is None else own_spark.home
    if home is not None and not any((home / "jars").glob(_SERVER_JAR)) and not _brings(_SERVER_PACKAGE, own):
        raise SparkSetupError(
            f"the Spark in {home} has no Spark Connect server ({_SERVER_JAR} is missing in its folder jars). Use "
            "Spark 4.0 or newer"
        )
    has_shortcuts = own_spark is None or own_spark.version.startswith("4.")
    classes = ",".join(name for name in (own.get(RELATION_CLASSES), SHORTCUTS) if name)
    shortcuts = {RELATION_CLASSES: classes} if has_shortcuts else {}
    on_s3 = serves_s3 or own_spark is not None or _brings(":hadoop-aws:", own)
    made = submit_arguments(
        "",
        master=master,
        conf={**SERVER_CONF, **own, **shortcuts, _ADDRESS: bind, _PORT: port},
        own_spark=own_spark,
        delta_version=delta_version,
        storage=JobStorage(needs_log_store=on_s3, serves_s3=on_s3),
        num_bytes=None,
        cache_dir=cache_dir,
    )
    if has_shortcuts:
        # where Delta is, which has to be in the same class loader
        jar = str(shortcuts_jar())
        if made.driver_class_path is not None:
            made = replace(made, driver_class_path=f"{made.driver_class_path}:{jar}")
        else:
            made = replace(made, jars=jar if made.jars is None else f"{made.jars},{jar}")
    return replace(
        made,
        application="spark-internal",
        application_args=(),
        main_class=_MAIN_CLASS,
        py_files="",
        users_settings=frozenset(own),
    )


def shortcuts_jar() -> Path:
    """Return the JAR that contains :data:`~.connect_shortcuts.SHORTCUTS`, for Spark 4."""
    return Path(__file__).resolve().parents[1] / "jars" / "fds-connect.jar"


@contextmanager
def running_server(
    arguments: SubmitArguments,
    on_line: Callable[[str], object],
    cache_dir: Path | None = None,
    cwd: Path | None = None,
    start_seconds: float = _START_SECONDS,
) -> Iterator[RunningServer]:
    """Start a server, wait until it accepts connections, and end it when the body ends, for whatever reason.

    Args:
        arguments: From :func:`server_arguments`.
        on_line: Called with each line of its log, without its line end, in another thread.
        cache_dir: For its private settings, which are removed once it runs.
        cwd: Its working directory; default: that of this process.
        start_seconds: How long it may take to start.

    Raises:
        ServerTakenError: The address cannot be listened on.
        ServerEndedError: The server ended before it listened, or did not listen in time.
        SparkSetupError: Its private settings cannot be written, or spark-submit cannot be run.
    """
    bind, port = arguments.conf[_ADDRESS], int(arguments.conf[_PORT])
    _check_free(bind, port)
    with submission(arguments, cache_dir) as given:
        process = _started(given, cwd)
        log = _Log(process, on_line)
        try:
            end_group_with(process, _END_SECONDS)
            listens_at = log.wait_until_it_listens(bind, port, start_seconds)
        except BaseException:
            log.end()
            raise
    try:
        yield RunningServer(_host(arguments), listens_at, process, log.last_lines)
    finally:
        log.end()


def warn_of_open_port(arguments: SubmitArguments) -> str | None:
    """Return what a server is warned of that others on the network reach without a token; ``None`` for any other."""
    bind = arguments.conf[_ADDRESS]
    if _is_loopback(bind) or _has_token(arguments):
        return None
    return (
        f"whoever reaches {bind} can run any code as this user, because the server has no token and no TLS. Let a "
        f"firewall or a network policy admit its clients only, or set {_TOKEN_VARIABLE} and put a proxy with a "
        "certificate in front"
    )


def _started(arguments: SubmitArguments, cwd: Path | None) -> subprocess.Popen[str]:
    try:
        return started(arguments, cwd)
    except OSError as error:
        raise SparkSetupError(f"{arguments.spark_binary} cannot be run: {error.strerror}") from error


class _Log:
    """Reads what a server prints, in a thread, to its end."""

    def __init__(self, process: subprocess.Popen[str], on_line: Callable[[str], object]) -> None:
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._process = process
        self._on_line = on_line
        self._port: int | None = None
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="fds-connect-server", daemon=True)
        self._thread.start()

    def wait_until_it_listens(self, bind: str, port: int, seconds: float) -> int:
        """Return the port on which it listens, which its log may not show if the user has another log configuration.

        Raises:
            ServerTakenError: Another process has the port.
            ServerEndedError: It ended, or did not listen in time.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._changed.wait(_POLL_SECONDS)
            if self._port is not None:
                return self._port
            code = self._process.poll()
            if code is not None:
                self._thread.join(_END_SECONDS)
                if any(_TAKEN.search(line) for line in self.last_lines):
                    raise ServerTakenError(_taken(bind, port, "Address already in use"))
                raise ServerEndedError(self._ended(f"ended with exit code {code} before it listened"))
            if port and _accepts(bind, port):
                return port
        raise ServerEndedError(self._ended(f"did not listen within {seconds:.0f} s"))

    def end(self) -> None:
        """End the server, and read the rest."""
        end_group(self._process, _END_SECONDS)
        self._process.wait()
        self._thread.join(_END_SECONDS)

    def _ended(self, how: str) -> str:
        return "\n    ".join([f"the Spark Connect server {how}. Its last lines:", *self.last_lines])

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        with self._process.stdout as lines:
            for raw in lines:
                line = raw.rstrip("\n")
                self.last_lines.append(line)
                self._on_line(line)
                if self._port is None and (found := _LISTENS.search(line)):
                    self._port = int(found[1])
                    self._changed.set()
        self._changed.set()


def _check_free(bind: str, port: int) -> None:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            # as Spark: connections that have ended do not count
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ServerTakenError(_taken(bind, port, error.strerror or str(error))) from error


def _taken(bind: str, port: int, why: str) -> str:
    return f"cannot listen on {bind}:{port} ({why}). Choose another port or address (port 0: a free one)"


def _accepts(bind: str, port: int) -> bool:
    host = {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(bind, bind)  # noqa: S104  # compared, not bound
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def _host(arguments: SubmitArguments) -> str:
    """Return what clients call the server."""
    bind = arguments.conf[_ADDRESS]
    if bind in {"0.0.0.0", "::"}:  # noqa: S104  # compared, not bound
        return socket.gethostname()
    # without TLS, a client sends a token to this name only
    return "localhost" if bind == _LOOPBACK and _has_token(arguments) else bind


def _is_loopback(bind: str) -> bool:
    return bind in {"localhost", "::1"} or bind.startswith("127.")


def _has_token(arguments: SubmitArguments) -> bool:
    return bool(arguments.conf.get(_TOKEN) or os.environ.get(_TOKEN_VARIABLE))


def _brings(artifact: str, conf: Mapping[str, Any]) -> bool:
    return artifact in str(conf.get("spark.jars.packages", ""))
