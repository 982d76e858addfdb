"""Progress lines for a long batch: stage, tasks, rows, rate, expected end. Python 3.9 syntax.

A thread waits beside the batch. If the batch ends within the interval, Spark is not polled.
Standard library and pyspark only.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

from airflow_provider_fds.batch.version_ranges import describe_covered
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.sizes import format_bytes, format_count
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec

#: Seconds between two lines about a batch.
INTERVAL_SECONDS = 30.0

#: How long the end of a batch waits for a line that is being made.
_JOIN_SECONDS = 2.0

#: Below this share, an expected end would be a guess.
_KNOWN_SHARE = 0.02


@dataclass(frozen=True)
class Stage:
    """The progress of one stage of a batch.

    Attributes:
        tasks: Number of its tasks.
        done: Number of its finished tasks.
        rows_read: Rows read so far, ``None`` if unknown.
        bytes_read: Bytes read so far, ``None`` if unknown.
        is_active: Whether it is running.
    """

    number: int
    tasks: int
    done: int
    rows_read: Optional[int] = None
    bytes_read: Optional[int] = None
    is_active: bool = True


class Stages:
    """The stages of a batch so far; asks the Spark driver for the jobs since :meth:`start`."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._seen: Dict[int, Stage] = {}
        self._first_job = 0
        self._known_jobs: Set[int] = set()

    def start(self) -> None:
        """Count the jobs from here on, also those that end before the first poll."""
        self._first_job = self._num_jobs()

    def stop(self) -> None:
        """End it."""

    def all(self) -> List[Stage]:
        """Return all stages so far, in the order of their numbers."""
        store = self._spark.sparkContext._jsc.sc().statusStore()
        open_ones = {stage.number for stage in self._seen.values() if stage.is_active or stage.done < stage.tasks}
        active = {stage.number: stage for stage in (_stage(one) for one in _items(store.activeStages()))}
        for number in (open_ones | self._new_stages(store)) - set(active):
            self._seen[number] = self._inactive(store, number)
        self._seen.update(active)
        return [self._seen[number] for number in sorted(self._seen)]

    def _new_stages(self, store: Any) -> Set[int]:
        """Return the stages of the jobs that the driver has listed since the last poll."""
        found: Set[int] = set()
        for job in set(range(self._first_job, self._num_jobs())) - self._known_jobs:
            # the driver lists a job a moment after it began, and keeps a limited number
            with suppress(Exception):
                found |= {int(number) for number in _items(store.job(job).stageIds())}
                self._known_jobs.add(job)
        return found - set(self._seen)

    def _inactive(self, store: Any, number: int) -> Stage:
        """Return a stage that has ended, or waits for another one."""
        try:
            return _stage(store.lastStageAttempt(number), is_active=False)
        except Exception:  # noqa: BLE001 - the driver keeps a limited number of stages
            return replace(self._seen.get(number, Stage(number, 0, 0)), is_active=False)

    def _num_jobs(self) -> int:
        return int(self._spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


class ConnectStages(Stages):
    """The stages of a batch on a Spark Connect server, which reports them to this client while it works."""

    def start(self) -> None:
        """Have the client pass on the server's reports; needs a client of Spark 4 or newer."""
        register = getattr(self._spark, "registerProgressHandler", None)
        if register is not None:
            register(self._report)

    def stop(self) -> None:
        """End it."""
        remove = getattr(self._spark, "removeProgressHandler", None)
        if remove is not None:
            remove(self._report)

    def all(self) -> List[Stage]:
        """Return the stages of the newest report of each operation."""
        return [stage for _, stage in sorted(self._seen.copy().items())]

    def _report(self, stages: Any = None, done: bool = False, **_: Any) -> None:
        # an error here would end the query
        with suppress(Exception):
            for one in stages or ():
                number = int(one.stage_id)
                is_active = not one.done and not done
                self._seen[number] = Stage(
                    number, one.num_tasks, one.num_completed_tasks, bytes_read=one.num_bytes_read, is_active=is_active
                )


class JobProgress:
    """Prints the progress of batches that take longer than an interval.

    Args:
        spark: Session.
        spec: The job.
        interval_seconds: Time from the beginning of a batch to its first line, and from there to the next one.
    """

    def __init__(self, spark: Any, spec: JobSpec, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._spark = spark
        self._spec = spec
        self._interval = interval_seconds
        self._began = time.monotonic()
        self._bytes_before = 0

    @contextmanager
    def batch(self, position: int, note: Optional[Callable[[str], None]] = None) -> Iterator[None]:
        """Print the progress of the batch at ``position`` while the body runs. Its errors do not affect the batch.

        Args:
            position: That of the batch in the job.
            note: Called with each description of the running stages.
        """
        batch = self._spec.batches[position]
        stages: Stages = ConnectStages(self._spark) if is_connect(self._spark) else Stages(self._spark)
        done = threading.Event()
        told = (position, stages, done, note)
        thread = threading.Thread(target=self._tell, args=told, name="fds-progress", daemon=True)
        with suppress(Exception):
            stages.start()
        with suppress(Exception):
            thread.start()
        try:
            yield
        finally:
            done.set()
            # the batch may be in the sink by now; the user's function may have cleared the handlers
            with suppress(Exception):
                stages.stop()
            if thread.is_alive():
                thread.join(_JOIN_SECONDS)
            self._bytes_before += batch.num_bytes + 1

    def _tell(
        self, position: int, stages: Stages, done: threading.Event, note: Optional[Callable[[str], None]]
    ) -> None:
        began = time.monotonic()
        while not done.wait(self._interval):
            try:
                found: Optional[List[Stage]] = stages.all()
            except Exception:  # noqa: BLE001 - another Spark may lack the methods, or be gone
                found = None
            if done.is_set():
                return
            if note is not None and found is not None:
                # a store that does not answer now may do so the next time
                with suppress(Exception):
                    note(", ".join(describe_stages(found, time.monotonic() - began)))
            try:
                print(self._line(position, found, time.monotonic() - began), flush=True)
            except Exception:  # noqa: BLE001 - a closed stdout; nobody reads more lines
                return

    def _line(self, position: int, stages: Optional[Sequence[Stage]], seconds: float) -> str:
        batch, batches = self._spec.batches[position], self._spec.batches
        which = f"{position + 1} of {len(batches)}, {_planned(batch)}"
        said = [f"FDS batch {batch.batch_id} ({which}): {format_duration(timedelta(seconds=seconds))}"]
        if stages is not None:
            said += describe_stages(stages, seconds)
            share = share_of(stages, batch.num_rows if self._counts_rows() else None)
            if share is not None:
                said.append(self._end(share, batch))
        return ", ".join(said)

    def _counts_rows(self) -> bool:
        """Whether Spark reads only the rows of the batch, and each once."""
        return self._spec.expectations is None and sink_from_dict(self._spec.sink).writes_rows_as_they_are

    def _end(self, share: float, batch: BatchSpec) -> str:
        # a batch without bytes counts too
        total = sum(one.num_bytes + 1 for one in self._spec.batches)
        done = (self._bytes_before + share * (batch.num_bytes + 1)) / total
        left = timedelta(seconds=(time.monotonic() - self._began) * (1 - done) / done)
        ends = (datetime.now(timezone.utc) + left).strftime("%H:%M:%SZ")
        what = "" if len(self._spec.batches) == 1 else " of all batches"
        return f"expected end{what} in {format_duration(left)} ({ends})"


def describe_stages(stages: Sequence[Stage], seconds: float) -> List[str]:
    """Return descriptions of the running stages, and of what was read in ``seconds``."""
    active = [stage for stage in stages if stage.is_active]
    said = [f"stage {stage.number}: {stage.done} of {format_count(stage.tasks, 'task')} done" for stage in active]
    rows = sum(stage.rows_read or 0 for stage in stages)
    num_bytes = sum(stage.bytes_read or 0 for stage in stages)
    read = [format_count(rows, "row")] if rows else []
    read += [format_bytes(num_bytes)] if num_bytes else []
    if read:
        said.append(" and ".join(read) + " read")
    if rows and seconds > 0:
        said.append(f"{rows / seconds:,.0f} rows/s")
    elif num_bytes and seconds > 0:
        said.append(f"{format_bytes(int(num_bytes / seconds))}/s")
    return said or ["no stage is running"]


def share_of(stages: Sequence[Stage], num_rows: Optional[int]) -> Optional[float]:
    """Return the share of a batch that is done, between 0 and 1, or ``None`` if it is not known yet.

    Args:
        stages: Its stages so far.
        num_rows: Rows of the batch, if they are known and Spark reads nothing else; otherwise the tasks of the largest
            running stage count.
    """
    rows = sum(stage.rows_read or 0 for stage in stages)
    if num_rows and 0 < rows <= num_rows:
        share = rows / num_rows
    else:
        active = [stage for stage in stages if stage.is_active and stage.tasks]
        largest = max(active, key=lambda stage: stage.tasks, default=None)
        share = 0.0 if largest is None else largest.done / largest.tasks
    return share if share >= _KNOWN_SHARE else None


def _planned(batch: BatchSpec) -> str:
    versions = describe_covered(batch.start, batch.end, batch.first_version, batch.last_version)
    rows = "" if batch.num_rows is None else f"{format_count(batch.num_rows, 'row')} in "
    return f"{versions}, {rows}{format_count(batch.num_files, 'file')} of {format_bytes(batch.num_bytes)}"


def _stage(data: Any, *, is_active: bool = True) -> Stage:
    """Return a stage from the driver's status store."""
    return Stage(
        data.stageId(),
        data.numTasks(),
        data.numCompleteTasks(),
        rows_read=data.inputRecords(),
        bytes_read=data.inputBytes(),
        is_active=is_active,
    )


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(position) for position in range(sequence.size()))


def tell_ui_address(spark: Any) -> None:
    """Print the address of the UI of a session in this process, if it has one, and the id that Spark's history has."""
    address = application = None
    with suppress(Exception):
        address = spark.sparkContext.uiWebUrl
    with suppress(Exception):
        if spark.conf.get("spark.eventLog.enabled", "false") == "true":
            application = spark.sparkContext.applicationId
    if address is not None:
        print(f"FDS Spark UI: {address}", flush=True)
    if application is not None:
        print(f"FDS Spark application: {application}", flush=True)
