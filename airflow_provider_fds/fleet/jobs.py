"""The files of one Spark application of a fleet in staging: its spec, and the driver's note of its progress."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.fleet_spec import (
    FleetJob,
    FleetProgress,
    FleetSpec,
    fleet_attempt,
    fleet_name,
    is_fleet,
    progress_name,
)
from airflow_provider_fds.batch.next_job import next_job_name
from airflow_provider_fds.batch.spec import job_attempt
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.layout import FLEET_FOLDER, fleet_folder
from airflow_provider_fds.stream.attempt.reports import new_attempt_id

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.fleet.stream_run import StreamRun
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

#: What a run logs that starts a driver beside that of a fleet.
SHARED: Final = (
    "Stream %s: driver %s, which an earlier attempt has started for its batches, also works for other streams of a "
    "fleet and goes on. This run starts another driver."
)

#: What a run that died has left is removed by a later one after this time.
_KEPT: Final = timedelta(days=7)


class FleetFiles:
    """The files of one application.

    Args:
        connected: A stream of the application, whose staging folder has the files: Spark can reach it.
        fleet: Name of the fleet.

    Attributes:
        folder: Folder of the files in staging.
        attempt_id: The attempt, which is in their names.
        jobs: Names of the streams for which the driver works; those of a driver that was left may have left the fleet.
    """

    def __init__(self, connected: ConnectedStream, fleet: str) -> None:
        self._connected = connected
        self._staging = connected.staging
        self.folder = fleet_folder(fleet)
        self.attempt_id = new_attempt_id()
        self._progress = f"{self.folder}/{progress_name(self.attempt_id)}"
        self._spec = ""
        self.jobs: tuple[str, ...] = ()
        self._noted = FleetProgress()

    def write(
        self,
        runs: Sequence[StreamRun],
        *,
        parallelism: int,
        max_bytes_in_flight: int | None,
        stop_on_failure: bool,
        stop_after_ms: int | None,
        linger_seconds: float | None,
    ) -> str:
        """Write the spec, see :class:`FleetSpec`, and return the URI that Spark reads it from."""
        spec = FleetSpec(
            jobs=tuple(
                FleetJob(
                    stream=run.name,
                    spec=run.spec_uri,
                    num_bytes=sum(batch.num_bytes for batch in run.work.batches),
                    timeout_seconds=None
                    if run.stream.batch_timeout is None
                    else run.stream.batch_timeout.total_seconds(),
                )
                for run in runs
            ),
            parallelism=parallelism,
            progress=self._connected.staging_location(self._progress),
            max_bytes_in_flight=max_bytes_in_flight,
            stop_on_failure=stop_on_failure,
            stop_after_ms=stop_after_ms,
            linger_seconds=linger_seconds,
        )
        data = spec.to_json()
        self._remove_old()
        self._spec = f"{self.folder}/{fleet_name(self.attempt_id, data)}"
        self._staging.put(self._spec, data)
        self.jobs = tuple(job.stream for job in spec.jobs)
        return self.spec_uri

    @classmethod
    def of_left(cls, runs: Sequence[StreamRun], fleet: str) -> FleetFiles:
        """Return the files of the application whose driver an earlier attempt has left at the work of ``runs``.

        :attr:`spec_uri` is empty if a task of one stream has started the driver.
        """
        found = cls(runs[0].session.connected, fleet)
        found.attempt_id = ""
        found.jobs = tuple(run.name for run in runs)
        try:
            spec = find_spec(found._staging, {(run.name, run.work.attempt_id) for run in runs})  # of its own class
        except FdsError as error:
            logger.debug("The files of the driver that was left cannot be read.", exc_info=error)
            return found
        if spec is not None:
            found._spec, found.jobs = spec
            found.folder, found.attempt_id = found._spec.rpartition("/")[0], fleet_attempt(found._spec)
            found._progress = f"{found.folder}/{progress_name(found.attempt_id)}"
        return found

    @property
    def spec_uri(self) -> str:
        """The URI that Spark reads the spec from; empty if there is none."""
        return self._connected.staging_location(self._spec) if self._spec else ""

    def polled(self) -> dict[str, Any]:
        """Return where a trigger finds the driver's notes, and what was read of them, as its arguments."""
        context, stream = self._connected.context, self._connected.stream
        return {
            "staging": context.staging_uri,
            "storage_conn_id": stream.storage_conn_id,
            "progress": self._progress,
            "streams": list(self.jobs),
            "reported": sum(self._noted.reports.get(name, 0) for name in self.jobs),
        }

    def progress(self) -> FleetProgress | None:
        """Return the driver's last note of what it has reported; ``None``: where it is, is not known. One GET."""
        if not self._spec:
            return None
        try:
            self._noted = FleetProgress.from_json(self._staging.get(self._progress)[0])
        except FileNotFoundError:
            return FleetProgress()
        except (FdsError, ValueError) as error:
            # a hint: the batches are committed later
            logger.debug("The progress of the fleet cannot be read.", exc_info=error)
            return FleetProgress()
        return self._noted

    def remove(self) -> None:
        """Remove the files of an application that has ended. If that fails, a later run does it."""
        if self._spec:
            self._remove(self._spec, self._progress)

    def remove_next(self) -> None:
        """Remove the name of the jobs after these, once they are done. If that fails, a later run does it."""
        self._remove(f"{self.folder}/{next_job_name(self.attempt_id)}")

    def _remove(self, *keys: str) -> None:
        try:
            for key in keys:
                self._staging.delete(key)
        except FdsError as error:
            logger.debug("The files of the fleet's application are removed later.", exc_info=error)

    def _remove_old(self) -> None:
        before_ms = int((datetime.now(UTC) - _KEPT).timestamp() * 1000)
        try:
            for found in list(self._staging.list_after(self.folder)):
                if found.modified_ms < before_ms:
                    self._staging.delete(f"{self.folder}/{found.key.rsplit('/', 1)[-1]}")
        except FdsError as error:
            logger.debug("Old files of the fleet are kept for now.", exc_info=error)


def find_spec(staging: Storage, work: Container[tuple[str, str]]) -> tuple[str, tuple[str, ...]] | None:
    """Return the spec of a fleet that has one of the jobs in ``work``, and the streams of all its jobs, or ``None``.

    Args:
        staging: Root of the staging folder, which is searched for the specs of applications that may be at work.
        work: Names of streams, each with an attempt.

    Raises:
        StorageError: Staging does not answer.
    """
    for fleet in staging.list_folders(FLEET_FOLDER):
        folder = f"{FLEET_FOLDER}/{fleet}"
        for listed in list(staging.list_after(folder)):
            key = f"{folder}/{listed.key.rsplit('/', 1)[-1]}"
            if not is_fleet(key):
                continue
            try:
                spec = FleetSpec.from_file(key, staging.get(key)[0])
            except (FileNotFoundError, ValueError):
                continue
            if any((job.stream, job_attempt(job.spec)) in work for job in spec.jobs):
                return key, tuple(job.stream for job in spec.jobs)
    return None


def left_driver(runs: Sequence[StreamRun], fleet: str, streams: Container[str]) -> tuple[str, str, str] | None:
    """Return the driver that an earlier attempt has left at the work of streams, and that is to be waited for.

    Whoever waits for a driver stops it at the end, so that of another fleet is left alone if it also works for streams
    that are not of this one. The run then has another driver load the same batches: each lands once.

    Args:
        runs: The runs of the streams that have work; those that are not to wait forget their driver.
        fleet: Name of the fleet.
        streams: Names of its streams.
    """
    for driver in dict.fromkeys(run.driver for run in runs if run.driver is not None):
        of_driver = [run for run in runs if run.driver == driver]
        files = FleetFiles.of_left(of_driver, fleet)
        if files.folder == fleet_folder(fleet) or all(name in streams for name in files.jobs):
            return driver
        for run in of_driver:
            logger.warning(SHARED, run.name, driver[-1])
            run.left = None
    return None
