"""``FleetReportsTrigger``: wait for the reports of a driver that a cluster runs for many streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger
from asgiref.sync import sync_to_async

from airflow_provider_fds.batch.fleet_spec import FleetProgress
from airflow_provider_fds.triggers.driver_reports import WatchesDriver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage


class FleetReportsTrigger(WatchesDriver, BaseTrigger):
    """Watches the driver of a fleet: a poll asks for the driver's note of its progress, with one HEAD.

    The note is read if it has changed.

    Args:
        progress: The note in staging.
        streams: The streams whose jobs the task waits for.
        reported: How many reports of theirs the task knows.
        driver: Arguments of :class:`~.driver_reports.WatchesDriver`.
    """

    POLLS: ClassVar = ("progress", "streams", "reported")

    def __init__(self, *, progress: str, streams: Sequence[str], reported: int = 0, **driver: Any) -> None:
        super().__init__(**driver)
        self.progress = progress
        self.streams = list(streams)
        self.reported = self._reported = self._known = int(reported)
        self._noted: ObjectMeta | None = None

    async def _count(self, staging: Storage) -> None:
        """Read the note if it is another one than before."""
        noted = await staging.head_async(self.progress)
        if noted is None or noted == self._noted:
            return
        data, _ = await sync_to_async(staging.get, thread_sensitive=False)(self.progress)
        progress = FleetProgress.from_json(data)
        self._noted = noted
        self._reported = sum(progress.reports.get(name, 0) for name in self.streams)
        self._is_all = all(name in progress.ended for name in self.streams)
