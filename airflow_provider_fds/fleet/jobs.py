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
from airflow_provider_fds.ledger.layout import fleet_folder
from airflow_provider_fds.stream.attempt.reports import new_attempt_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.fleet.stream_run import StreamRun
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

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
    """

    def __init__(self, connected: ConnectedStream, fleet: str) -> None:
        self._connected = connected
        self._staging = connected.staging
        self.folder = fleet_folder(fleet)
        self.attempt_id = new_attempt_id()
        self._progress = f"{self.folder}/{progress_name(self.attempt_id)}"
        self._spec = ""

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
        return self.spec_uri

    @classmethod
    def of_left(cls, runs: Sequence[StreamRun], fleet: str) -> FleetFiles:
        """Return the files of the application whose driver an earlier attempt has left at the work of ``runs``.

        :attr:`spec_uri` is empty if another fleet has started the driver, or a task of one stream.
        """
        found = cls(runs[0].session.connected, fleet)
        found.attempt_id = ""
        try:
            found._find({(run.name, run.work.attempt_id) for run in runs})  # of its own class
        except FdsError as error:
            logger.debug("The files of the driver that was left cannot be read.", exc_info=error)
        return found

    def _find(self, work: set[tuple[str, str]]) -> None:
        """Find the spec that names the attempt of a stream in ``work``."""
        for listed in list(self._staging.list_after(self.folder)):
            key = f"{self.folder}/{listed.key.rsplit('/', 1)[-1]}"
            if not is_fleet(key):
                continue
            try:
                spec = FleetSpec.from_file(key, self._staging.get(key)[0])
            except (FileNotFoundError, ValueError):
                continue
            if any((job.stream, job_attempt(job.spec)) in work for job in spec.jobs):
                self._spec, self.attempt_id = key, fleet_attempt(key)
                self._progress = f"{self.folder}/{progress_name(self.attempt_id)}"

    @property
    def spec_uri(self) -> str:
        """The URI that Spark reads the spec from; empty if there is none."""
        return self._connected.staging_location(self._spec) if self._spec else ""

    def polled(self, runs: Sequence[StreamRun]) -> dict[str, Any]:
        """Return where a trigger finds the driver's notes about the work of ``runs``, as its arguments."""
        context, stream = self._connected.context, self._connected.stream
        return {
            "staging": context.staging_uri,
            "storage_conn_id": stream.storage_conn_id,
            "progress": self._progress,
            "streams": [run.name for run in runs],
            "reported": sum(run.num_reported for run in runs),
        }

    def progress(self) -> FleetProgress | None:
        """Return the driver's last note of what it has reported; ``None``: where it is, is not known. One GET."""
        if not self._spec:
            return None
        try:
            return FleetProgress.from_json(self._staging.get(self._progress)[0])
        except FileNotFoundError:
            return FleetProgress()
        except (FdsError, ValueError) as error:
            # a hint: the batches are committed later
            logger.debug("The progress of the fleet cannot be read.", exc_info=error)
            return FleetProgress()

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
