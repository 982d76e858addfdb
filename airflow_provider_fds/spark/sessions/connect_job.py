"""A batch on a Spark Connect server: the job of ``job.py`` run from this process, in a session that may outlive it.

Spark continues a client's work after the client dies. So each attempt records session, user and a tag in its marker
before it touches the sink, and the next attempt first stops the rest of it. That a batch lands once does not depend on
this; the transaction ensures it. Standard library and pyspark only; pyspark is imported when it is needed.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from airflow_provider_fds import __version__
from airflow_provider_fds.batch.report import STARTED, report_name
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.spark.application.job_run import run, shares_session
from airflow_provider_fds.spark.runtime.failures import shortened
from airflow_provider_fds.spark.runtime.hadoop_files import OtherFiles, hadoop_path, names, reached_by, read_bytes
from airflow_provider_fds.spark.sessions.connect_server import is_over, is_shared, version_difference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.spark.sessions.connect_server import ConnectServer

_INTERRUPT_SECONDS: Final = 20

#: Namespace for the ids of shared sessions, which are derived from names (RFC 9562, version 5); Spark's own are random.
_SHARED: Final = UUID("5d0c3a52-6c5e-4b0e-9b1c-6f0f3c1f7a11")
#: Shorter than the hour after which a server ends an unused session: the id of an ended session cannot be used again.
_SHARED_SECONDS: Final = 1800


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
        """Stop the rest of earlier attempts, then run the job. Returns the exit code of :func:`~.job_run.run`.

        Whatever ends this (a kill that Python can handle, a time limit), Spark's work for it is stopped.

        Raises:
            ServerUnreachableError: The server does not answer; this attempt wrote nothing.
            ServerUnfitError: The server's setup does not allow it, or it ignores what FDS relies on.
        """
        with reached_by(self.files):
            spec = JobSpec.from_file(self.spec_uri, read_bytes(hadoop_path(self.spec_uri)))
            tag = tag_of(spec.attempt_id)
            shared_id = shared_session_id(spec, self.conf, time.time())
            with self.server.session(tag, self.conf, shared_id) as spark:
                if (difference := version_difference(spark.version)) is not None:
                    self.tell(f"{self.server.name}: {difference}")
                self._server_work.stop_earlier(spec, spark)
                # loaded while Spark is there already, not when a task resumes
                from airflow_provider_fds.spark.sessions.semantics import check_semantics

                check_semantics(self.server, spark, self.conf, self.spec_uri, self.tell)
                self._running = (spark, tag)
                try:
                    return run(spark, spec, on_report)
                except BaseException:
                    self.kill()
                    raise
                finally:
                    self._running = None

    @property
    def _server_work(self) -> ServerWork:
        return ServerWork(self.server, self.tell)

    def kill(self) -> None:
        """Stop Spark's work for this job, and let it start no more; may be called in a signal handler."""
        running, self._running = self._running, None
        if running is not None:
            spark, tag = running
            self._server_work.stop(spark.session_id, spark.client._user_id, (tag,), spark.client)


@dataclass(frozen=True)
class ServerWork:
    """Stops what a server does for attempts.

    Attributes:
        server: The server.
        tell: Called with each line of output for people.
    """

    server: ConnectServer
    tell: Callable[[str], None]

    def stop(self, session_id: str, user_id: str | None, tags: tuple[str, ...], client: Any = None) -> None:
        """Stop the operations of a session that carry one of the tags, and end it unless it is shared."""
        # a separate connection and thread: threads that wait for Spark may hold locks
        done: list[Any] = []

        def interrupt() -> None:
            try:
                done.append(self.server.interrupt(session_id, user_id, tags))
                if client is not None and is_shared(session_id):
                    # the session continues, this client does not
                    client.close()
            except Exception as error:  # noqa: BLE001 - the transaction makes what is not stopped harmless
                done.append([] if is_over(error) else shortened(str(error)))

        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        thread.join(_INTERRUPT_SECONDS)
        what = done[0] if done else f"no answer within {_INTERRUPT_SECONDS} s"
        if isinstance(what, list):
            ended = "" if is_shared(session_id) else " ended"
            self.tell(f"{self.server.name}: session {session_id}{ended}, {len(what)} operations stopped.")
        else:
            self.tell(f"{self.server.name}: session {session_id} could not be ended: {what}")

    def stop_earlier(self, spec: JobSpec, spark: Any) -> None:
        """Stop what earlier attempts of these batches have left running."""
        for marker in left_behind(spec, spark):
            trace = marker["connect"]
            self.tell(
                f"Attempt {marker['attempt_id']} left no report; its remaining operations on {self.server.name} "
                "were stopped."
            )
            # by the name of the file, not its contents: this may stop only what that attempt has started
            self.stop(trace["session_id"], trace.get("user_id"), (tag_of(marker["attempt_id"]),))


def left_behind(spec: JobSpec, spark: Any) -> list[dict[str, Any]]:
    """Return the markers of earlier attempts of these batches that ran over Spark Connect and left no report."""
    reports = hadoop_path(spec.reports, spark)
    found = []
    for batch in spec.batches:
        folder = report_name(batch.epoch, batch.batch_id, "x").rpartition("/")[0]
        there = names(f"{reports}/{folder}", spark)
        attempts = {name.removesuffix(STARTED) for name in there if name.endswith(STARTED)} - {spec.attempt_id}
        if not attempts:
            # attempts go from batch to batch: one that did not get here did not get further either
            break
        for name in sorted(attempts):
            if f"{name}.json" in there:
                continue
            try:
                marker = json.loads(read_bytes(f"{reports}/{folder}/{name}{STARTED}", spark))
            except (ValueError, RecursionError):
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
    """Return the id of the session that the jobs of a stream share for a while, or ``None`` if a job cannot share.

    In a new session, Spark and Delta must rebuild much of what a small batch needs: a quarter of its time. A job shares
    a session if its only settings for the session are the user's ``conf``, which all jobs have: transactions as options
    of the write, no SQL, no user's function.

    Args:
        spec: The job.
        conf: The user's settings for the session.
        now: Seconds since the epoch.
    """
    if not shares_session(spec):
        return None
    return session_id(spec.batches[0].uuid, conf, now)


def session_id(owner: str, conf: Mapping[str, str], now: float) -> str:
    """Return the id of the session that ``owner`` shares for a while, see :func:`shared_session_id`."""
    names = [owner, __version__, sorted(conf.items()), int(now // _SHARED_SECONDS)]
    return str(uuid5(_SHARED, json.dumps(names)))


def tag_of(attempt_id: str) -> str:
    """Return the tag of all operations of an attempt; Spark allows no comma in it."""
    return "fds-" + re.sub(r"[^A-Za-z0-9._-]", "-", attempt_id)
