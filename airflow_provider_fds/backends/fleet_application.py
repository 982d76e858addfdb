"""One Spark application that works for many streams of a fleet."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.backends.conf_by_size import largest_transaction
from airflow_provider_fds.backends.job_storage import storage_of
from airflow_provider_fds.batch.fleet_spec import fleet_attempt, progress_name
from airflow_provider_fds.batch.next_job import next_job_name
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.fleet.in_threads import THREADS, each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.spark.submission.object_store import JobStorage
    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FleetPart:
    """The share of one stream in an application of a fleet.

    Attributes:
        session: The run of the stream.
        sink: Where its batches go.
        work: Its batches, or the epoch to fence.
        spec_uri: URI of its job spec, as Spark reads it.
    """

    session: StreamSession
    sink: Sink
    work: RunWork
    spec_uri: str

    @property
    def num_bytes(self) -> int:
        """Planned bytes of all its batches."""
        return sum(batch.num_bytes for batch in self.work.batches)


@dataclass(frozen=True)
class FleetApplication:
    """One Spark application that works for many streams.

    Attributes:
        parts: The streams, each with its run, in the order of the fleet spec.
        spec_uri: URI of the :class:`~airflow_provider_fds.batch.fleet_spec.FleetSpec`, as Spark reads it.
        commit: Commits what is reported so far, of all streams, and returns whether all of them have ended. It is
            called about every three seconds while Spark runs, more often if Spark stays, by one thread at a time and
            never after :meth:`SparkBackend.run_fleet` has returned.
        folder: Folder of its files in the staging folder of the first stream.
        parallelism: Number of batches that are worked on at the same time.
        name: Name that Spark shows.
        context: The context of the Airflow task, ``None`` on the command line.
        conf: Settings for a driver that is started for it; the user's take precedence.
    """

    parts: tuple[FleetPart, ...]
    spec_uri: str
    commit: Callable[[], bool]
    folder: str = ""
    parallelism: int = 8
    name: str = "fds"
    context: Any = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def num_bytes(self) -> int:
        """Planned bytes of all batches of all streams."""
        return sum(part.num_bytes for part in self.parts)

    @property
    def largest_bytes(self) -> int:
        """Planned bytes of the largest transaction of all streams, 0 without batches."""
        return max((largest_transaction(part.session, part.work) for part in self.parts), default=0)

    @property
    def staging(self) -> Storage:
        """The staging folder with its files."""
        return self.parts[0].session.connected.staging

    @property
    def next_job_key(self) -> str:
        """Where in staging a driver that lingers looks for the jobs after these."""
        return f"{self.folder}/{next_job_name(self.attempt_id)}"

    @property
    def begun_key(self) -> str:
        """What is in staging once a driver has worked on the jobs."""
        return f"{self.folder}/{progress_name(self.attempt_id)}"

    @property
    def attempt_id(self) -> str:
        """The attempt in the name of its spec."""
        return fleet_attempt(self.spec_uri)

    @property
    def left(self) -> SubmittedFacts | None:
        """The driver that an earlier attempt has started for all parts, if it is waited for."""
        return next((part.work.submitted for part in self.parts if part.work.submitted is not None), None)

    @property
    def own_name(self) -> str:
        """Name under which the attempt that has started the driver knows it: the driver's own, once it is started."""
        return "" if self.left is None else self.left.driver

    @property
    def can_be_left(self) -> bool:
        """Whether another process can go on with it: its notes are known, and the ledgers name the driver of all parts.

        No ledger has that of a fence.
        """
        return bool(self.attempt_id) and len(self.streams) == len(self.parts)

    def started(self) -> FleetApplication:
        """Return the application with the driver that the ledgers have, which was just started."""
        parts = [replace(part, work=part.session.driver.left(part.work) or part.work) for part in self.parts]
        return replace(self, parts=tuple(parts))

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams whose ledgers have its driver."""
        return tuple(part.session.stream.name for part in self.parts if part.work.batches)

    def record(self, *, cluster: str, address: str, driver: str) -> None:
        """Let the ledgers of all streams have the driver. A stream whose ledger refuses it holds no other one back.

        Raises:
            FdsError: No ledger has it.
        """
        refused: list[FdsError] = []

        def write(part: FleetPart) -> None:
            try:
                part.session.driver.write(part.work, cluster=cluster, address=address, driver=driver)
            except FdsError as error:
                # whoever looks for the driver finds it in the other ledgers
                logger.warning("Stream %s: its ledger does not have the driver: %s", part.session.stream.name, error)
                refused.append(error)

        parts = [part for part in self.parts if part.work.batches]
        each(THREADS, write, parts)
        if refused and len(refused) == len(parts):
            raise refused[0]

    def storage(self) -> JobStorage:
        """Return where the application reads and writes: the places of all streams."""
        from airflow_provider_fds.spark.submission.object_store import JobStorage

        stores = [storage_of(part.session, part.sink) for part in self.parts]
        places = {(place.uri, repr(sorted(place.options.items()))): place for one in stores for place in one.places}
        return JobStorage(tuple(places.values()), any(one.needs_log_store for one in stores))
