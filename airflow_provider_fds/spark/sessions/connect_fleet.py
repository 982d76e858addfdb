"""A fleet on a Spark Connect server: the jobs of many streams, run from threads of this process.

Standard library and pyspark only; pyspark is imported when it is needed.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.fleet_spec import FleetSpec
from airflow_provider_fds.spark.application.fleet_job import Fleet
from airflow_provider_fds.spark.application.job_run import shares_session
from airflow_provider_fds.spark.runtime.hadoop_files import OtherFiles, hadoop_path, reached_by, read_bytes, write_bytes
from airflow_provider_fds.spark.runtime.settings import force
from airflow_provider_fds.spark.sessions.connect_job import ServerWork, session_id, tag_of
from airflow_provider_fds.spark.sessions.connect_server import close, connect_mode, is_shared, version_difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_fds.batch.fleet_spec import FleetJob
    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.spark.sessions.connect_server import ConnectServer


@dataclass
class ConnectFleet:
    """The jobs of a fleet, run on a server from this process. Implements :class:`~.fleet_job.FleetSpark`.

    Streams whose jobs leave the session as it is share one session, with one connection; each of the others has its
    own until it ends.

    Attributes:
        server: The server.
        spec_uri: URI of the fleet spec.
        common: Access to the fleet's own files from here, if they are not local.
        files: By stream, access to its staging and the sink's log.
        conf: The user's settings for the sessions.
        tell: Called with each line of output for people.
    """

    server: ConnectServer
    spec_uri: str
    common: OtherFiles
    files: Mapping[str, OtherFiles]
    conf: Mapping[str, str]
    tell: Callable[[str], None]
    _shared: Any = field(default=None, init=False, repr=False)
    _settings: dict[str, dict[str, str]] = field(default_factory=dict, init=False, repr=False)
    _own: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _running: dict[str, tuple[Any, str]] = field(default_factory=dict, init=False, repr=False)
    _fleet: Fleet | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def work(self) -> dict[str, str]:
        """Run the jobs; return how each has ended, by stream.

        Whatever ends this (a kill that Python can handle, a time limit), Spark's work for it is stopped.

        Raises:
            ServerUnreachableError: The server does not answer; nothing was written.
            ServerUnfitError: The server's setup does not allow it, or it ignores what FDS relies on.
        """
        with reached_by(self.common):
            spec = FleetSpec.from_file(self.spec_uri, read_bytes(hadoop_path(self.spec_uri)))
        self.server.check_reachable()
        # one context for all threads
        with connect_mode():
            self._shared = self.server.open_fit(self.conf, session_id("fleet", self.conf, time.time()))
            try:
                if (difference := version_difference(self._shared.version)) is not None:
                    self.tell(f"{self.server.name}: {difference}")
                first = spec.jobs[0]
                with reached_by(self.files[first.stream]):
                    # loaded while Spark is there already, not when a task resumes
                    from airflow_provider_fds.spark.sessions.semantics import check_semantics

                    check_semantics(self.server, self._shared, self.conf, first.spec, self.tell)
                self._fleet = fleet = Fleet(spec, self, self._write)
                return fleet.run()
            except BaseException:
                self.kill()
                raise
            finally:
                self._fleet = None
                for spark in [*self._own.values(), self._shared]:
                    with suppress(Exception):
                        close(spark)

    def kill(self) -> None:
        """Stop Spark's work for the fleet, and let it start no more; may be called in a signal handler."""
        fleet = self._fleet
        if fleet is not None:
            fleet.stop()
        by_session: dict[str, tuple[Any, list[str]]] = {}
        for spark, tag in list(self._running.values()):
            by_session.setdefault(spark.session_id, (spark, []))[1].append(tag)
        for name, (spark, tags) in by_session.items():
            ServerWork(self.server, self.tell).stop(name, spark.client._user_id, tuple(tags))

    def read(self, job: FleetJob) -> bytes:
        """Return the spec of a job."""
        with reached_by(self.files[job.stream]):
            return read_bytes(hadoop_path(job.spec))

    def session(self, job: FleetJob, spec: JobSpec) -> tuple[Any, Callable[[], dict[str, str]]]:
        """Return the session of a stream, and how it is prepared; stop what its earlier attempts left running."""
        spark = self._shared if shares_session(spec) else self.server.open_fit(self.conf)
        if spark is not self._shared:
            self._own[job.stream] = spark
        with reached_by(self.files[job.stream]):
            ServerWork(self.server, self.tell).stop_earlier(spec, spark)
        return spark, lambda: self._prepared(spark)

    def any_session(self) -> Any:
        """Return the session that most streams share."""
        return self._shared

    @contextmanager
    def working(self, job: FleetJob, spec: JobSpec, spark: Any) -> Iterator[None]:
        """Give the thread the stream's files, its tag and the session."""
        from pyspark.sql.connect.session import SparkSession

        tag = tag_of(spec.attempt_id)
        self._running[job.stream] = (spark, tag)
        try:
            # tags and the active session are those of the thread
            spark.clearTags()
            spark.addTag(tag)
            SparkSession._active_session.session = spark
            with reached_by(self.files[job.stream]):
                yield
        finally:
            self._running.pop(job.stream, None)
            with suppress(Exception):
                spark.clearTags()

    @contextmanager
    def reporting(self, job: FleetJob) -> Iterator[None]:
        """Give the thread the stream's files."""
        with reached_by(self.files[job.stream]):
            yield

    def cancel(self, job: FleetJob, spec: JobSpec, spark: Any) -> None:  # noqa: ARG002 - see FleetSpark
        """Stop the operations of a stream; its own session ends."""
        tags = (tag_of(spec.attempt_id),)
        ServerWork(self.server, self.tell).stop(spark.session_id, spark.client._user_id, tags)

    def release(self, job: FleetJob) -> None:
        """End the session that a stream had for itself."""
        spark = self._own.pop(job.stream, None)
        if spark is not None:
            close(spark)

    def _prepared(self, spark: Any) -> dict[str, str]:
        if not is_shared(spark.session_id):
            return force(spark)
        with self._lock:
            if spark.session_id not in self._settings:
                self._settings[spark.session_id] = force(spark)
            return self._settings[spark.session_id]

    def _write(self, uri: str, data: bytes) -> None:
        with reached_by(self.common):
            write_bytes(hadoop_path(uri), data)
