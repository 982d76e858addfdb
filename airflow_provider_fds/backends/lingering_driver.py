"""A spark-submit that stays between the jobs of a run that lingers, and takes them from staging."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.backends.base import Outcome
from airflow_provider_fds.batch.next_job import KEY_SETTING, next_job
from airflow_provider_fds.stream.run.collecting import GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.backends.base import Application
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.spark.submission.object_store import JobStorage

logger = logging.getLogger(__name__)

#: Time between two looks for a report: the first ones where a look is a system call, and where it is a request. Each
#: look without one makes it longer, by this factor, up to the last.
_LOCAL_SECONDS: Final = 0.02
_REMOTE_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 1.0
_GROWTH: Final = 1.1


@dataclass
class LingeringDriver:
    """One spark-submit for the jobs of a run, one after the other.

    If it ends, by a batch that failed or by anything else, the next job starts another one.

    Attributes:
        start: Runs spark-submit with the job of an application, and returns how it ended.
        cancel: Ends spark-submit.
    """

    start: Callable[[Application | FleetApplication], Outcome]
    cancel: Callable[[], object]
    _key: str = field(default="", init=False, repr=False)
    _thread: threading.Thread | None = field(default=None, init=False, repr=False)
    _ended: Outcome | BaseException | None = field(default=None, init=False, repr=False)
    #: Set by the thread at its end: Python 3.11 and 3.12 call a thread ended once a signal's exception leaves its join.
    _has_ended: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _storage: JobStorage | None = field(default=None, init=False, repr=False)
    _last: Application | FleetApplication | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> None:
        """Begin; spark-submit starts with the first job."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Let spark-submit end, or stop it after an error."""
        if kind is None:
            self._leave()
        self._stop()

    def run(self, application: Application | FleetApplication) -> Outcome:
        """Let spark-submit work on a job, and commit each batch as soon as it is reported.

        Returns:
            How spark-submit ended, or no error once everything is reported: it then waits for the next job.

        Raises:
            FdsError: Spark could not be started, or this run no longer owns the stream.
        """
        if self._storage is not None and self._is_running() and not self._storage.covers(application.storage()):
            logger.info("Spark was started without the credentials of a table of the next job; it starts again.")
            self._leave()
            self._stop()
        if not self._is_running():
            self._begin(application)
            return self._await(application)
        self._put(application.spec_uri)
        self._last = application
        outcome = self._await(application)
        if not self._is_running() and application.staging.head(application.begun_key) is None:
            # it was ending when it was given the job
            self._begin(application)
            return self._await(application)
        return outcome

    def _is_running(self) -> bool:
        return self._thread is not None and not self._has_ended.is_set()

    def _await(self, application: Application | FleetApplication) -> Outcome:
        """Commit what is reported until the job is done, or spark-submit has ended."""
        pause = _LOCAL_SECONDS if application.staging.is_file_system else _REMOTE_SECONDS
        while not self._wait(pause):
            if application.commit():
                return Outcome()
            pause = min(pause * _GROWTH, _LONGEST_SECONDS)
        return self._outcome()

    def _begin(self, application: Application | FleetApplication) -> None:
        self._key = secrets.token_hex(32)
        self._last, self._storage = application, application.storage()
        self._ended = None
        self._has_ended = has_ended = threading.Event()
        first = replace(application, conf={**application.conf, KEY_SETTING: self._key})

        def work() -> None:
            try:
                self._ended = self.start(first)
            except BaseException as error:  # noqa: BLE001 - raised where the run waits
                self._ended = error
            finally:
                has_ended.set()

        # Airflow's operators must be called in the context of their task
        within = copy_context()
        self._thread = threading.Thread(target=within.run, args=(work,), name="fds-spark-submit", daemon=True)
        self._thread.start()

    def _wait(self, seconds: float) -> bool:
        """Wait for the end of spark-submit, at most for a time; return whether it has ended."""
        return self._has_ended.wait(seconds)

    def _outcome(self) -> Outcome:
        ended, self._thread = self._ended, None
        if isinstance(ended, BaseException):
            raise ended
        return ended or Outcome()

    def _put(self, spec_uri: str | None) -> None:
        """Tell spark-submit its next job, or with ``None`` that there is none: write it where it looks."""
        assert self._last is not None  # noqa: S101 - it has a job
        last = self._last
        last.staging.put(last.next_job_key, next_job(last.attempt_id, spec_uri, self._key))

    def _leave(self) -> None:
        """Tell spark-submit that there is no other job, and wait for its end, for a while."""
        if not self._is_running():
            return
        try:
            self._put(None)
        finally:
            until = time.monotonic() + GRACE_SECONDS
            while time.monotonic() < until and not self._wait(1.0):
                pass

    def _stop(self) -> None:
        if self._is_running():
            self.cancel()
            self._wait(GRACE_SECONDS)
