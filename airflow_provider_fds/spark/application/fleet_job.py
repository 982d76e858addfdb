"""The jobs of a fleet in one Spark application: many streams side by side, each with its own reports and its own fate.

Standard library and pyspark only, Python 3.9 syntax.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, Iterator, Optional, Protocol, Tuple

from airflow_provider_fds.batch.fleet_spec import FleetProgress, FleetSpec
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.spark.application.fleet_schedule import FleetSchedule
from airflow_provider_fds.spark.application.job_run import EXIT_DONE, JobRun, shares_session
from airflow_provider_fds.spark.runtime.driver_versions import check_versions
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, local_path, read_bytes, write_bytes
from airflow_provider_fds.spark.runtime.settings import force

if TYPE_CHECKING:
    from airflow_provider_fds.batch.fleet_spec import FleetJob

#: Shortest time between two notes of the progress.
_NOTE_SECONDS = 2.0

#: Prepares a session before the first batch in it, and returns the forced settings.
Prepare = Callable[[], Dict[str, str]]


class FleetSpark(Protocol):
    """The Spark that a fleet works in: sessions for its streams, and threads that work in them."""

    def read(self, job: FleetJob) -> bytes:
        """Return the spec of a job."""
        raise NotImplementedError

    def session(self, job: FleetJob, spec: JobSpec) -> Tuple[Any, Prepare]:
        """Return the session of a stream, and how it is prepared.

        Streams whose jobs leave the session as it is share one; each of the others has its own, so that settings and
        views of one do not affect the others.
        """
        raise NotImplementedError

    def any_session(self) -> Any:
        """Return a session for reports of a stream that has none."""

    def working(self, job: FleetJob, spec: JobSpec, spark: Any) -> ContextManager[None]:
        """Return a context within which this thread works on a stream."""
        raise NotImplementedError

    def reporting(self, job: FleetJob) -> ContextManager[None]:
        """Return a context within which this thread writes a report of a stream that was given up."""
        raise NotImplementedError

    def cancel(self, job: FleetJob, spec: JobSpec, spark: Any) -> None:
        """Stop what Spark does for a stream; called from another thread."""

    def release(self, job: FleetJob) -> None:
        """End what a stream had for itself; called when it has ended."""


class ClassicSpark:
    """The Spark of a driver: sessions of one SparkContext.

    Args:
        spark: The session that the application began with.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._shared: Any = None
        self._shared_settings: Optional[Dict[str, str]] = None

    def read(self, job: FleetJob) -> bytes:
        """Return the spec of a job."""
        return read_bytes(hadoop_path(job.spec, self._spark), self._spark)

    def session(self, job: FleetJob, spec: JobSpec) -> Tuple[Any, Prepare]:  # noqa: ARG002 - see FleetSpark
        """Return the session of a stream, and how it is prepared."""
        if not shares_session(spec):
            own = self._spark.newSession()
            return own, lambda: self._prepared(own)
        with self._lock:
            if self._shared is None:
                self._shared = self._spark.newSession()
            return self._shared, self._prepared_shared

    def any_session(self) -> Any:
        """Return the session that the application began with."""
        return self._spark

    @contextmanager
    def working(self, job: FleetJob, spec: JobSpec, spark: Any) -> Iterator[None]:
        """Give the thread a pool, a group of jobs and the session."""
        context = spark.sparkContext
        # one pool a thread, not a stream: Spark never removes a pool
        context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        context.setJobGroup(_group(spec), f"FDS stream {job.stream}", interruptOnCancel=True)
        set_active(spark)
        yield

    def reporting(self, job: FleetJob) -> ContextManager[None]:  # noqa: ARG002 - see FleetSpark
        """Return an empty context."""
        return nullcontext()

    def release(self, job: FleetJob) -> None:
        """Do nothing: a session ends when nothing refers to it."""

    def cancel(self, job: FleetJob, spec: JobSpec, spark: Any) -> None:  # noqa: ARG002 - see FleetSpark
        """Cancel the Spark jobs of a stream, and those that it still starts."""
        context = spark.sparkContext
        try:
            context._jsc.sc().cancelJobGroupAndFutureJobs(_group(spec))
        except Exception:  # noqa: BLE001 - Spark 3.5 cancels only what is running
            context.cancelJobGroup(_group(spec))

    def _prepared_shared(self) -> Dict[str, str]:
        with self._lock:
            if self._shared_settings is None:
                self._shared_settings = self._settings(self._shared)
            return self._shared_settings

    def _prepared(self, spark: Any) -> Dict[str, str]:
        with self._lock:
            return self._settings(spark)

    def _settings(self, spark: Any) -> Dict[str, str]:
        check_versions(spark)
        return force(spark)


class FleetStreamRun:
    """The job of one stream, as the schedule works it off.

    Args:
        job: The stream's job in the fleet spec.
        spark: Where it works.
    """

    def __init__(self, job: FleetJob, spark: FleetSpark) -> None:
        self.name = job.stream
        self.num_bytes = job.num_bytes
        self.timeout_seconds = job.timeout_seconds
        self._job = job
        self._spark = spark
        self._session: Any = None
        self._run: Optional[JobRun] = None
        self._spec: Optional[JobSpec] = None
        self._is_given_up = False

    def open(self) -> None:
        """Read the spec of the job."""
        self._spec = JobSpec.from_file(self._job.spec, self._spark.read(self._job))

    def next_bytes(self) -> int:
        """Return the planned bytes of the next step."""
        if self._run is None:
            batches = () if self._spec is None else self._spec.batches
            return batches[0].num_bytes if batches else 0
        batch = self._run.next_batch
        return 0 if batch is None else batch.num_bytes

    def step(self) -> Optional[str]:
        """Load the next batch, or write the fence. Returns how the stream has ended, ``None`` if there is more."""
        spec = self._spec
        assert spec is not None  # noqa: S101 - open() comes first
        if self._run is None:
            self._session, prepare = self._spark.session(self._job, spec)
            if self._is_given_up:
                return "failed"
            self._run = JobRun(self._session, spec, prepare=prepare, progress_seconds=None, stream=self.name)
        with self._spark.working(self._job, spec, self._session):
            self._run.step()
        if self._run.code is None:
            return None
        self._session = None
        with suppress(Exception):
            self._spark.release(self._job)
        if self._run.has_rest:
            return "left"
        return "done" if self._run.code == EXIT_DONE else "failed"

    def give_up(self, error: BaseException) -> None:
        """Cancel what runs, and report the batch as failed."""
        self._is_given_up = True
        if self._spec is None:
            # without its spec, nobody knows where its reports belong
            print(f"FDS stream {self.name}: cannot read the job spec {self._job.spec}: {error}", flush=True)
            return
        if self._run is None:
            # no session of its own; the report can be written nevertheless
            self._run = JobRun(self._spark.any_session(), self._spec, progress_seconds=None, stream=self.name)
        else:
            with suppress(Exception):
                self._spark.cancel(self._job, self._spec, self._session)
        if not isinstance(error, Exception):
            error = RuntimeError(f"{type(error).__name__}: {error}")
        with self._spark.reporting(self._job):
            self._run.give_up(error)


class Fleet:
    """The jobs of a fleet, in threads.

    Args:
        spec: The fleet.
        spark: Where it works.
        write: Writes the progress to a URI.
        schedule: Arguments of :class:`~.fleet_schedule.FleetSchedule`.
    """

    def __init__(
        self, spec: FleetSpec, spark: FleetSpark, write: Callable[[str, bytes], None], **schedule: Any
    ) -> None:
        self._spec = spec
        self._write = write
        self._noted: Optional[FleetProgress] = None
        self._noted_at = 0.0
        self._schedule = FleetSchedule(
            [FleetStreamRun(job, spark) for job in spec.jobs],
            spec.parallelism,
            max_bytes_in_flight=spec.max_bytes_in_flight,
            stop_on_failure=spec.stop_on_failure,
            is_late=self._is_late,
            on_poll=self._note,
            **schedule,
        )

    def run(self) -> Dict[str, str]:
        """Run all jobs; return how each has ended, by stream, see :data:`~.fleet_spec.FLEET_OUTCOMES`."""
        ended = self._schedule.run()
        self._noted_at = 0.0
        with suppress(Exception):
            self._note()
        print(self._schedule.describe(), flush=True)
        return ended

    def stop(self) -> None:
        """Start no further batch."""
        self._schedule.stop()

    def _is_late(self) -> bool:
        limit = self._spec.stop_after_ms
        return limit is not None and time.time() * 1000 >= limit

    def _note(self) -> None:
        if self._spec.progress is None or time.monotonic() - self._noted_at < _NOTE_SECONDS:
            return
        progress = FleetProgress(dict(self._schedule.steps), dict(self._schedule.ended))
        if progress != self._noted:
            self._noted_at = time.monotonic()
            self._write(self._spec.progress, progress.to_json())
            self._noted = progress


def run_fleet(spark: Any, spec: FleetSpec) -> Dict[str, str]:
    """Run the jobs of a fleet in this driver; work that was given up may still be running at the end.

    Returns:
        How each has ended, see :meth:`Fleet.run`.
    """

    def write(uri: str, data: bytes) -> None:
        write_bytes(hadoop_path(uri, spark), data, spark)

    return Fleet(spec, ClassicSpark(spark), write).run()


def report_unstarted(spec: FleetSpec, error: Exception) -> None:
    """Report for each stream why there is no session; only if its staging is local: the rest needs Spark."""
    for job in spec.jobs:
        with suppress(OSError, ValueError, TypeError):
            path = hadoop_path(job.spec)
            if local_path(path) is not None:
                own = JobSpec.from_file(job.spec, read_bytes(path))
                JobRun(None, own, progress_seconds=None, stream=job.stream).give_up(error)


def set_active(spark: Any) -> None:
    """Make a session the active one of this thread, for Delta and for a user's function."""
    find = getattr(type(spark), "_get_j_spark_session_class", None)
    sessions = spark._jvm.SparkSession if find is None else find(spark._jvm)
    sessions.setActiveSession(spark._jsparkSession)


def _group(spec: JobSpec) -> str:
    subject = spec.batches[0].uuid if spec.fence is None else spec.fence.uuid
    return f"fds-{subject}-{spec.attempt_id}"
