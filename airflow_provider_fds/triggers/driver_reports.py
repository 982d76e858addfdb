"""``DriverReportsTrigger``: wait for the reports of a driver that a cluster runs, with one request per poll."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fds.batch.report import report_name
from airflow_provider_fds.hooks.places import open_folder
from airflow_provider_fds.spark.clusters.cluster import LOST_SECONDS, Handle
from airflow_provider_fds.spark.clusters.stored import from_dict
from airflow_provider_fds.triggers.pacing import note_start, pause_seconds, poll_slot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.spark.clusters.cluster import Cluster, Look

#: Seconds between two questions to the cluster about a driver that reports nothing.
LOOK_SECONDS: Final = 60.0
#: Questions to one cluster that all triggers of a process ask at once: one that does not answer must not take the
#: threads of others.
_LOOKS_AT_ONCE: Final = 2

logger = logging.getLogger(__name__)

#: By cluster.
_looks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()


class WatchesDriver:
    """A trigger that fires once, when the task that has left a driver in a cluster has something to do for it.

    A subclass says what a poll of staging finds. The trigger writes nothing, and what it says is a reason to wake the
    task, which asks the ledger, the sink and the cluster itself. It never fails on an error of staging or of the
    cluster: the poll is repeated with growing pauses, and the driver goes on.

    The cluster is asked about the driver after each report, else every ``look_seconds``.

    Events:
        ``{"status": "success", "reason": str, "silent_seconds": float, "resume": {…}}``. The reasons:

        - ``reported``: the driver has reported everything.
        - ``progress``: there is a new report, and it is ``commit_after``.
        - ``ended``: the cluster says that the driver has ended.
        - ``silent``: the cluster has not told its state for ``silent_seconds``, at least 10 minutes.
        - ``timeout``: it is ``until``.

    If a user marks or clears the task, Airflow from 3.3 on has the trigger stop the driver. A triggerer that ends or
    restarts leaves it alone.

    Args:
        staging: URI of the staging folder.
        storage_conn_id: Airflow connection of staging; ``None``: the environment's credentials.
        cluster: The cluster, see :func:`~.stored.to_dict`.
        address: Where the cluster was asked for the driver.
        driver: The cluster's name of the driver.
        poll_interval: Seconds between two polls.
        look_seconds: Seconds between two questions to the cluster.
        commit_after: From when on the trigger fires for some of the batches, in seconds since the epoch.
        until: When to fire in any case, in seconds since the epoch; ``None``: never.
        resume: Returned in the event: plain values of the task.
        obsolete: Arguments that an older or newer version of FDS has stored; ignored.

    Attributes:
        POLLS: Names of the arguments that say where to poll, besides those of staging.
    """

    POLLS: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        staging: str,
        cluster: Mapping[str, Any],
        address: str,
        driver: str,
        storage_conn_id: str | None = None,
        poll_interval: float = 10.0,
        look_seconds: float = LOOK_SECONDS,
        commit_after: float = 0.0,
        until: float | None = None,
        resume: Mapping[str, Any] | None = None,
        **obsolete: Any,
    ) -> None:
        super().__init__()
        self.staging = staging
        self.storage_conn_id = storage_conn_id
        self.cluster = dict(cluster)
        self.address = address
        self.driver = driver
        self.poll_interval = float(poll_interval)
        self.look_seconds = float(look_seconds)
        self.commit_after = float(commit_after)
        self.until = until
        self.resume = dict(resume or {})
        self._storage: Storage | None = None
        #: How many reports are there, of which the task knows the first ones.
        self._reported = self._known = 0
        self._is_all = False
        self._look: asyncio.Task[Look] | None = None
        self._silent_since: float | None = None
        if obsolete:
            logger.info(
                "Ignoring the arguments %s of this trigger: they come from another version of FDS.", sorted(obsolete)
            )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        polls = ("staging", "storage_conn_id", *self.POLLS, "poll_interval")
        asks = ("cluster", "address", "driver", "look_seconds")
        names = (*polls, *asks, "commit_after", "until", "resume")
        kind = type(self)
        return f"{kind.__module__}.{kind.__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the task has something to do, report it, and end."""
        note_start()
        refusals = 0
        look_at = time.monotonic() + self.look_seconds
        try:
            while True:
                before = self._reported
                try:
                    await self._poll()
                    refusals = 0
                except Exception as error:  # noqa: BLE001  # storage or Airflow's API server may be restarting
                    refusals += 1
                    self._storage = None
                    logger.warning("Poll %d for reports in %s was refused: %s", refusals, self.staging, error)
                ended = self._answer()
                if (reason := self._reason(ended=ended)) is not None:
                    yield self._event(reason)
                    return
                if self._look is None and (self._reported > before or time.monotonic() >= look_at):
                    look_at = time.monotonic() + self.look_seconds
                    self._look = asyncio.ensure_future(self._ask())
                await asyncio.sleep(self._pause_seconds(refusals))
        finally:
            if self._look is not None:
                self._look.cancel()

    async def on_kill(self) -> None:
        """Stop the driver: a user has marked or cleared the task. Airflow calls this from 3.3 on."""
        cluster = self._cluster()
        if cluster is None:
            return
        said = await asyncio.to_thread(cluster.stop, self._handle)
        if said is None:
            logger.info("Driver %s was stopped, because a user has marked or cleared its task.", self.driver)
        else:
            logger.warning("Driver %s could not be stopped: %s", self.driver, said)

    async def _poll(self) -> None:
        async with poll_slot():
            if self._storage is None:
                # a connection is looked up
                self._storage = await sync_to_async(self._open, thread_sensitive=False)()
            await self._count(self._storage)

    async def _count(self, staging: Storage) -> None:
        """Count what the driver has reported, with one request if that is nothing new."""
        raise NotImplementedError

    def _open(self) -> Storage:
        return open_folder(self.storage_conn_id, self.staging)

    async def _ask(self) -> Look:
        """Ask the cluster about the driver, in a thread."""
        of_loop = _looks.setdefault(asyncio.get_running_loop(), {})
        async with of_loop.setdefault(repr(self.cluster), asyncio.Semaphore(_LOOKS_AT_ONCE)):
            cluster = self._cluster()
            if cluster is None:
                raise LookupError(f"this version of FDS does not know clusters of the kind {self.cluster.get('kind')}")
            return await asyncio.to_thread(cluster.look, self._handle)

    def _answer(self) -> bool:
        """Take the cluster's answer, if there is one; return whether the driver has ended."""
        if self._look is None or not self._look.done():
            return False
        look, self._look = self._look, None
        state, words = "unknown", ""
        try:
            state, words = look.result().state, look.result().words
        except Exception as error:  # noqa: BLE001  # whatever the cluster answers, the driver may go on
            words = str(error)
        if state != "unknown":
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = time.monotonic()
            logger.warning("The cluster does not tell the state of driver %s: %s", self.driver, words)
        return state == "ended"

    def _cluster(self) -> Cluster | None:
        with suppress(TypeError):
            return from_dict(self.cluster)
        return None

    @property
    def _handle(self) -> Handle:
        return Handle(self.address, self.driver)

    @property
    def _silent_seconds(self) -> float:
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    def _reason(self, *, ended: bool) -> str | None:
        now = time.time()
        if self._is_all:
            return "reported"
        if ended:
            return "ended"
        if self.until is not None and now >= self.until:
            return "timeout"
        if self._silent_seconds >= LOST_SECONDS:
            return "silent"
        return "progress" if self._reported > self._known and now >= self.commit_after else None

    def _pause_seconds(self, refusals: int) -> float:
        pause = pause_seconds(self.poll_interval, refusals)
        return pause if self.until is None else min(pause, max(0.1, self.until - time.time()))

    def _event(self, reason: str) -> TriggerEvent:
        payload = {
            "status": "success",
            "reason": reason,
            "silent_seconds": self._silent_seconds,
            "resume": self.resume,
        }
        return TriggerEvent(payload)  # type: ignore[no-untyped-call]


class DriverReportsTrigger(WatchesDriver, BaseTrigger):
    """Watches the driver of one stream: a poll asks staging for the report on the next batch, with one HEAD.

    Args:
        reports: Folder of the reports in staging.
        epoch: The epoch of the batches, or the generation of their interval.
        batch_ids: The batches that are not committed, in order.
        attempt_id: The attempt under whose name the driver reports.
        driver: Arguments of :class:`WatchesDriver`.
    """

    POLLS: ClassVar = ("reports", "epoch", "batch_ids", "attempt_id")

    def __init__(self, *, reports: str, epoch: int, batch_ids: Sequence[int], attempt_id: str, **driver: Any) -> None:
        super().__init__(**driver)
        self.reports = reports
        self.epoch = int(epoch)
        self.batch_ids = list(batch_ids)
        self.attempt_id = attempt_id

    async def _count(self, staging: Storage) -> None:
        """Count the batches that the driver has reported, in order."""
        while self._reported < len(self.batch_ids):
            name = report_name(self.epoch, self.batch_ids[self._reported], self.attempt_id)
            if await staging.head_async(f"{self.reports}/{name}") is None:
                return
            self._reported += 1
        self._is_all = True
