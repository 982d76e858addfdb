"""A batch on a Spark Connect server: the job of ``job.py`` run from this process, in a session that may outlive it.

Spark continues a client's work after the client dies. So each attempt records session, user and a tag in its marker
before it touches the sink, and the next attempt first stops the rest of it. That a batch lands once does not depend on
this; the transaction ensures it. Standard library and pyspark only; pyspark is imported when it is needed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from airflow_provider_fds import __version__
from airflow_provider_fds.batch.report import report_name
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.spark.failures import explain, shortened
from airflow_provider_fds.spark.files import OtherFiles, hadoop_path, names, reached_by, read_bytes
from airflow_provider_fds.spark.install import client_packages, client_version
from airflow_provider_fds.spark.job import EXIT_DONE, run
from airflow_provider_fds.spark.settings import CATALOG, DELTA_EXTENSION, DELTA_SESSION, EXTENSIONS, conf_problems
from airflow_provider_fds.spark.versions import minor, server_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_fds.batch.report import AttemptReport

_DEFAULT_PORT: Final = 15002
_CONNECT_SECONDS: Final = 10
#: How long a server may be unreachable during a batch before the batch fails: 8 attempts, at most 5 s apart.
_RETRIES: Final = {"max_retries": 8, "initial_backoff": 100, "max_backoff": 5000}
_INTERRUPT_SECONDS: Final = 20

#: Where a server lists the JARs it was started with.
_JARS: Final = ("spark.jars", "spark.jars.packages")

#: Of FDS's own sessions. Otherwise the server sends long stack traces with the message; the causes are in the message
#: anyway.
_SESSION_CONF: Final = {
    "spark.sql.connect.serverStacktrace.enabled": "false",
}

_STARTED: Final = ".started.json"

#: Namespace for the ids of shared sessions, which are derived from names (RFC 9562, version 5); Spark's own are random.
_SHARED: Final = UUID("5d0c3a52-6c5e-4b0e-9b1c-6f0f3c1f7a11")
_SHARED_VERSION: Final = 5
#: Shorter than the hour after which a server ends an unused session: the id of an ended session cannot be used again.
_SHARED_SECONDS: Final = 1800


class ServerUnreachableError(Exception):
    """The server does not answer; another attempt may find it."""


class ServerUnfitError(Exception):
    """The server answers, but its setup does not allow the request."""


@dataclass(frozen=True)
class ConnectServer:
    """A Spark Connect server and how to reach it.

    Attributes:
        url: ``sc://host:port/;key=value…`` as pyspark takes it; may contain a token.
        name: Its name in messages, such as ``connection 'spark_connect_default'``.
    """

    url: str = field(repr=False)
    name: str

    @property
    def endpoint(self) -> str:
        """Host and port, without secrets."""
        parts = urlsplit("http" + self.url[2:])
        return f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"

    def check_reachable(self) -> None:
        """Open and close a connection.

        Raises:
            ServerUnreachableError: Nothing answers at the address.
        """
        host, _, port = self.endpoint.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            raise ServerUnreachableError(
                f"the Spark Connect server of {self.name} does not answer at {self.endpoint} ({error}). Nothing was "
                "written; a retry works on the same rows. See that the server runs, and that this machine reaches it"
            ) from None

    @contextmanager
    def session(self, tag: str, conf: Mapping[str, str] | None = None, shared_id: str | None = None) -> Iterator[Any]:
        """Open a session in which all operations of this client carry ``tag``.

        Args:
            tag: See :func:`tag_of`.
            conf: The user's settings for it.
            shared_id: Id of a session that is started if it does not exist, and left open for the next job, see
                :func:`shared_session_id`. ``None``, or if the server has ended that session: a session of its own,
                which is released at the end.

        Raises:
            ServerUnreachableError: The server does not answer.
            ServerUnfitError: It has no Delta, or refuses a setting or the session.
        """
        self.check_reachable()
        with _connect_mode():
            spark = self._joined(shared_id) or self.open()
            try:
                self._check(spark, conf or {})
                spark.addTag(tag)
                yield spark
            finally:
                # a server that is gone cannot be told to end its session
                spark.client.set_retry_policies([])
                spark.stop()

    def interrupt(self, session_id: str, user_id: str | None, tags: tuple[str, ...]) -> list[str]:
        """Join a session, stop its operations that carry one of the tags, and end it. Returns the stopped operations.

        In a session that has already ended there is nothing to stop. A shared session is not ended.
        """
        with _connect_mode():
            spark = self.open(is_active=False, session_id=session_id, user_id=user_id)
            try:
                return [operation for tag in tags for operation in spark.interruptTag(tag)]
            finally:
                spark.client.set_retry_policies([])
                spark.stop()

    def open(self, *, is_active: bool = True, **parameters: str | None) -> Any:
        """Return a session, a new one unless ``session_id`` and ``user_id`` name an existing one.

        Args:
            is_active: Whether ``SparkSession.getActiveSession()`` finds it, in a user's function.
            parameters: Replace those of the URL.
        """
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        builder = DefaultChannelBuilder(self.url)
        for key, value in parameters.items():
            if value is not None:
                builder.set(key, value)
        spark = SparkSession.builder.channelBuilder(builder).create() if is_active else SparkSession(builder)
        spark.release_session_on_close = not is_shared(spark.session_id)
        spark.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        return spark

    def _joined(self, session_id: str | None) -> Any:
        if session_id is None:
            return None
        spark = self.open(session_id=session_id)
        try:
            spark.version  # noqa: B018 - the first request to the server
        except Exception as error:  # noqa: BLE001 - any other error recurs at the next request
            if _is_over(error):
                spark.stop()
                return None
        return spark

    def _check(self, spark: Any, conf: Mapping[str, str]) -> None:
        try:
            version = spark.version
            settings = spark.conf.getAll
            jars = ",".join(settings.get(name) or "" for name in _JARS).split(",")
            problem = server_problem(version, client_version(), jars, client_packages())
            extensions = settings.get(EXTENSIONS) or ""
            for key, value in ({} if problem else {**_SESSION_CONF, **conf}).items():
                spark.conf.set(key, value)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            failure = explain(error)
            kind = ServerUnreachableError if failure.retryable else ServerUnfitError
            raise kind(
                f"the Spark Connect server of {self.name} at {self.endpoint} refused the session "
                f"({failure.error_class}): {failure.message}"
            ) from None
        if problem is not None:
            raise ServerUnfitError(
                f"the Spark Connect server of {self.name} at {self.endpoint} cannot be used: {problem}"
            )
        if DELTA_EXTENSION not in extensions:
            raise ServerUnfitError(
                f"the Spark Connect server of {self.name} at {self.endpoint} (Spark {version}) has no Delta: "
                f"{EXTENSIONS} is {extensions!r}. Start it with Delta's two JARs, --conf {EXTENSIONS}="
                f"{DELTA_EXTENSION} and --conf {CATALOG}={DELTA_SESSION[CATALOG]}"
            )


def _is_over(error: Exception) -> bool:
    """Whether the server has ended the requested session."""
    return any(sign in str(error) for sign in ("SESSION_CLOSED", "SESSION_NOT_FOUND"))


def version_difference(server_version: str) -> str | None:
    """Return how the versions of server and installed pyspark differ, ``None`` if they do not."""
    mine = client_version()
    if minor(server_version) == minor(mine):
        return None
    return (
        f"the server is Spark {server_version}, the installed pyspark is {mine}. Spark promises that a client works "
        "with a server of its own or a newer version; what FDS was tried with is the same version on both sides"
    )


@dataclass
class ConnectJob:
    """One job of planned batches, run on a server from this process.

    Attributes:
        server: The server.
        spec_uri: URI of the job spec.
        files: Access to staging and the sink's log from here, if they are not local.
        conf: The user's settings for the session.
        tell: Called with each line of output for people.
    """

    server: ConnectServer
    spec_uri: str
    files: OtherFiles
    conf: Mapping[str, str]
    tell: Callable[[str], None]
    _running: tuple[Any, str] | None = field(default=None, init=False)

    def work(self, on_report: Callable[[AttemptReport], object] | None = None) -> int:
        """Stop the rest of earlier attempts, then run the job. Returns the exit code of :func:`~.job.run`.

        Whatever ends this (a kill that Python can handle, a time limit), Spark's work for it is stopped.

        Raises:
            ServerUnreachableError: The server does not answer; this attempt wrote nothing.
            ServerUnfitError: The server's setup does not allow it.
        """
        with reached_by(self.files):
            spec = JobSpec.from_file(self.spec_uri, read_bytes(hadoop_path(self.spec_uri)))
            tag = tag_of(spec.attempt_id)
            shared_id = shared_session_id(spec, self.conf, time.time())
            with self.server.session(tag, self.conf, shared_id) as spark:
                if (difference := version_difference(spark.version)) is not None:
                    self.tell(f"{self.server.name}: {difference}")
                self._stop_earlier(spec, spark)
                self._running = (spark, tag)
                try:
                    return run(spark, spec, on_report)
                except BaseException:
                    self.kill()
                    raise
                finally:
                    self._running = None

    def kill(self) -> None:
        """Stop Spark's work for this job, and let it start no more; may be called in a signal handler."""
        running, self._running = self._running, None
        if running is not None:
            spark, tag = running
            self._stop(spark.session_id, spark.client._user_id, (tag,), spark.client)

    def _stop(self, session_id: str, user_id: str | None, tags: tuple[str, ...], client: Any = None) -> None:
        # a separate connection and thread: threads that wait for Spark may hold locks
        done: list[Any] = []

        def stop() -> None:
            try:
                done.append(self.server.interrupt(session_id, user_id, tags))
                if client is not None and is_shared(session_id):
                    # the session continues, this client does not
                    client.close()
            except Exception as error:  # noqa: BLE001 - the transaction makes what is not stopped harmless
                done.append([] if _is_over(error) else shortened(str(error)))

        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        thread.join(_INTERRUPT_SECONDS)
        what = done[0] if done else f"no answer within {_INTERRUPT_SECONDS} s"
        if isinstance(what, list):
            ended = "" if is_shared(session_id) else " ended"
            self.tell(f"{self.server.name}: session {session_id}{ended}, {len(what)} operations stopped.")
        else:
            self.tell(f"{self.server.name}: session {session_id} could not be ended: {what}")

    def _stop_earlier(self, spec: JobSpec, spark: Any) -> None:
        for marker in left_behind(spec, spark):
            trace = marker["connect"]
            self.tell(
                f"Attempt {marker['attempt_id']} left no report; what it may still do on {self.server.name} is stopped."
            )
            # by the name of the file, not its contents: this may stop only what that attempt has started
            self._stop(trace["session_id"], trace.get("user_id"), (tag_of(marker["attempt_id"]),))


def left_behind(spec: JobSpec, spark: Any) -> list[dict[str, Any]]:
    """Return the markers of earlier attempts of these batches that ran over Spark Connect and left no report."""
    reports = hadoop_path(spec.reports, spark)
    found = []
    for batch in spec.batches:
        folder = report_name(batch.epoch, batch.batch_id, "x").rpartition("/")[0]
        there = names(f"{reports}/{folder}", spark)
        attempts = {name.removesuffix(_STARTED) for name in there if name.endswith(_STARTED)} - {spec.attempt_id}
        if not attempts:
            # attempts go from batch to batch: one that did not get here did not get further either
            break
        for name in sorted(attempts):
            if f"{name}.json" in there:
                continue
            try:
                marker = json.loads(read_bytes(f"{reports}/{folder}/{name}{_STARTED}", spark))
            except ValueError:
                continue
            trace = marker.get("connect") if isinstance(marker, dict) else None
            if isinstance(trace, dict) and _is_id(trace.get("session_id")):
                found.append({**marker, "attempt_id": name})
    return found


def _is_id(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(UUID(text))
    except ValueError:
        return False


def shared_session_id(spec: JobSpec, conf: Mapping[str, str], now: float) -> str | None:
    """Return the id of the session that the jobs of a stream share for a while, ``None`` for a job that cannot share.

    In a new session, Spark and Delta must rebuild much of what a small batch needs: a quarter of its time. A job shares
    a session if its only settings for the session are the user's ``conf``, which all jobs have: transactions as options
    of the write, no SQL, no user's function.

    Args:
        spec: The job.
        conf: The user's settings for the session.
        now: Seconds since the epoch.
    """
    if spec.fence is not None or not sink_from_dict(spec.sink).leaves_session_as_it_is:
        return None
    names = [spec.batches[0].uuid, __version__, sorted(conf.items()), int(now // _SHARED_SECONDS)]
    return str(uuid5(_SHARED, json.dumps(names)))


def is_shared(session_id: str) -> bool:
    """Whether other jobs may use the session too."""
    return UUID(session_id).version == _SHARED_VERSION


def tag_of(attempt_id: str) -> str:
    """Return the tag of all operations of an attempt; Spark allows no comma in it."""
    return "fds-" + re.sub(r"[^A-Za-z0-9._-]", "-", attempt_id)


@contextmanager
def _connect_mode() -> Iterator[None]:
    """Make ``pyspark.sql.functions`` return Spark Connect columns within the context, as pyspark's own builder does."""
    before = os.environ.get("SPARK_CONNECT_MODE_ENABLED")
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    try:
        with warnings.catch_warnings():
            # pyspark emits this at import if pandas 3 is installed
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            # the error itself follows
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
            yield
    finally:
        if before is None:
            del os.environ["SPARK_CONNECT_MODE_ENABLED"]
        else:
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = before


__all__ = [
    "EXIT_DONE",
    "ConnectJob",
    "ConnectServer",
    "ServerUnfitError",
    "ServerUnreachableError",
    "conf_problems",
    "is_shared",
    "left_behind",
    "shared_session_id",
    "tag_of",
    "version_difference",
]
