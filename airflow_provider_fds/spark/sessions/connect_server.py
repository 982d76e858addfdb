"""A Spark Connect server: whether it can load batches, and sessions on it. pyspark is imported when it is needed."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from airflow_provider_fds import __version__
from airflow_provider_fds.spark.installation.cache import default_cache_dir, make_folder
from airflow_provider_fds.spark.installation.install import client_packages, client_version
from airflow_provider_fds.spark.runtime.failures import explain
from airflow_provider_fds.spark.runtime.settings import CATALOG, DELTA_EXTENSION, DELTA_SESSION, EXTENSIONS, set_all
from airflow_provider_fds.spark.runtime.versions import minor, server_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


_DEFAULT_PORT: Final = 15002
_CONNECT_SECONDS: Final = 10
#: How long a server may be unreachable during a batch before the batch fails: 8 attempts, at most 5 s apart.
_RETRIES: Final = {"max_retries": 8, "initial_backoff": 100, "max_backoff": 5000}

#: How long a server that was fit is not asked again before a run plans. Each job asks in its own session anyway.
_FIT_SECONDS: Final = 600

#: Where a server lists the JARs it was started with, and what separates them there.
_JARS: Final = {"spark.jars": ",", "spark.jars.packages": ",", "spark.driver.extraClassPath": ":"}

#: Of FDS's own sessions. Otherwise the server sends long stack traces with the message; the causes are in the message
#: anyway.
_SESSION_CONF: Final = {
    "spark.sql.connect.serverStacktrace.enabled": "false",
}

#: The version of a shared session's id, which is derived from names (RFC 9562); Spark's own are random (version 4).
_SHARED_VERSION: Final = 5


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
                f"the Spark Connect server of {self.name} does not answer at {self.endpoint} ({error}). Nothing "
                "was written; a retry works on the same rows. Check that the server is running and that this "
                "machine can reach it"
            ) from None

    def check_fit(self) -> None:
        """Refuse a server that cannot load batches with this client, before anything is planned.

        A run without news must stay cheap, so a server that was fit is not asked again for ten minutes.

        Raises:
            ServerUnreachableError: It does not answer.
            ServerUnfitError: Its Spark and the installed client are incompatible, it has no Delta or that of another
                Spark, or it refuses the session.
        """
        kept = self._fitness_file()
        with suppress(OSError):
            if 0 <= time.time() - kept.stat().st_mtime < _FIT_SECONDS:
                return
        self.check_reachable()
        with connect_mode():
            spark = self.open(is_active=False)
            try:
                self._check(spark, {})
            finally:
                close(spark)
        with suppress(OSError):
            make_folder(kept.parent.parent)
            make_folder(kept.parent)
            kept.touch()

    def _fitness_file(self) -> Path:
        facts = json.dumps([self.endpoint, client_version(), __version__])
        return default_cache_dir() / "servers" / hashlib.sha256(facts.encode()).hexdigest()[:24]

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
        with connect_mode():
            spark = self.open_fit(conf, shared_id)
            try:
                spark.addTag(tag)
                yield spark
            finally:
                close(spark)

    def open_fit(
        self, conf: Mapping[str, str] | None = None, shared_id: str | None = None, *, is_active: bool = True
    ) -> Any:
        """Open a session that can load batches, within :func:`connect_mode`; the caller must :func:`close` it.

        Args:
            conf: The user's settings for it.
            shared_id: See :meth:`session`.
            is_active: See :meth:`open`.

        Raises:
            ServerUnreachableError: The server does not answer.
            ServerUnfitError: It has no Delta, or refuses a setting or the session.
        """
        spark = self._joined(shared_id) or self.open(is_active=is_active)
        try:
            self._check(spark, conf or {})
        except BaseException:
            close(spark)
            raise
        return spark

    def interrupt(self, session_id: str, user_id: str | None, tags: tuple[str, ...]) -> list[str]:
        """Join a session, stop its operations that carry one of the tags, and end it. Returns the stopped operations.

        In a session that has already ended there is nothing to stop. A shared session is not ended.
        """
        with connect_mode():
            spark = self.open(is_active=False, session_id=session_id, user_id=user_id)
            try:
                return [operation for tag in tags for operation in spark.interruptTag(tag)]
            finally:
                close(spark)

    def open(self, *, is_active: bool = True, **parameters: str | None) -> Any:
        """Return a session, a new one unless ``session_id`` and ``user_id`` name an existing one.

        Args:
            is_active: Whether ``SparkSession.getActiveSession()`` finds it, in a user's function.
            parameters: Replace those of the URL.
        """
        DefaultChannelBuilder, DefaultPolicy, SparkSession = import_client()  # noqa: N806 - pyspark's classes

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
            if is_over(error):
                spark.stop()
                return None
        return spark

    def _check(self, spark: Any, conf: Mapping[str, str]) -> None:
        try:
            version = spark.version
            settings = spark.conf.getAll
            jars = [jar for name, between in _JARS.items() for jar in (settings.get(name) or "").split(between)]
            problem = server_problem(version, client_version(), jars, client_packages())
            extensions = settings.get(EXTENSIONS) or ""
            wanted = {} if problem else {**_SESSION_CONF, **conf}
            # a shared session has them already
            set_all(spark, {key: value for key, value in wanted.items() if settings.get(key) != value})
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
                f"{EXTENSIONS} is {extensions!r}. Start it with `fds connect-server`, or with Delta's two "
                f"JARs, --conf {EXTENSIONS}={DELTA_EXTENSION} and --conf {CATALOG}={DELTA_SESSION[CATALOG]}"
            )


def import_client() -> tuple[Any, Any, Any]:
    """Import pyspark's client; return its channel builder, its policy for retries, and its session.

    Most of the CPU time of a small batch: 650 modules, pandas and pyarrow among them.
    """
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    return DefaultChannelBuilder, DefaultPolicy, SparkSession


def is_over(error: Exception) -> bool:
    """Whether the server has ended the requested session."""
    return any(sign in str(error) for sign in ("SESSION_CLOSED", "SESSION_NOT_FOUND"))


def version_difference(server_version: str) -> str | None:
    """Return how the versions of server and installed pyspark differ, or ``None`` if they do not."""
    mine = client_version()
    if minor(server_version) == minor(mine):
        return None
    return (
        f"the server is Spark {server_version}, but the installed pyspark is {mine}. Spark guarantees only that a "
        "client works with a server of the same or a newer minor version"
    )


def close(spark: Any) -> None:
    """Close a session, and end it on the server unless it is shared."""
    # a server that is gone cannot be told to end its session
    spark.client.set_retry_policies([])
    spark.stop()


def is_shared(session_id: str) -> bool:
    """Whether other jobs may use the session too."""
    return UUID(session_id).version == _SHARED_VERSION


#: By which pyspark tells a process with Connect sessions.
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
_MODE_LOCK: Final = threading.Lock()
_inside = 0
_before_mode: str | None = None


@contextmanager
def connect_mode() -> Iterator[None]:
    """Make ``pyspark.sql.functions`` return Spark Connect columns within the context, as pyspark's own builder does.

    It holds for the whole process until the last of its threads has left. What was set before stays.
    """
    _enter_mode()
    try:
        with warnings.catch_warnings():
            # pyspark emits this at import if pandas 3 is installed
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            # the error itself follows
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
            yield
    finally:
        _leave_mode()


def _enter_mode() -> None:
    global _inside, _before_mode  # noqa: PLW0603  # as the variable, they are of the process
    with _MODE_LOCK:
        if _inside == 0:
            _before_mode = os.environ.get(_MODE)
        _inside += 1
        os.environ[_MODE] = "1"


def _leave_mode() -> None:
    global _inside  # noqa: PLW0603
    with _MODE_LOCK:
        _inside -= 1
        if _inside:
            return
        if _before_mode is None:
            os.environ.pop(_MODE, None)
        else:
            os.environ[_MODE] = _before_mode
