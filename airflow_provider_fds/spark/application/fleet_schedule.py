"""Which stream of a fleet is worked on when, in threads. Knows no Spark. Standard library only, Python 3.9 syntax.

The steps of a stream run strictly one after the other. After each step, a stream goes to the back of the queue, so that
one with many batches does not hold back the others; in the first round, the streams with the most bytes come first.
A stream that fails ends alone.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter, deque
from contextlib import suppress
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, List, Optional, Protocol, Sequence

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError

#: How often a line about the fleet is printed.
LINE_SECONDS = 30.0

#: How long giving up a step may take: Spark is asked to cancel its jobs, and a report is written.
_GIVE_UP_SECONDS = 30.0

#: A stream whose batch does not fit beside the running ones may be overtaken by so many others.
_OVERTAKEN = 16


class Steps(Protocol):
    """The work of one stream, step by step.

    Attributes:
        name: Name of the stream.
        num_bytes: Planned bytes of all its steps.
        timeout_seconds: How long one step may take; ``None``: no limit.
    """

    name: str
    num_bytes: int
    timeout_seconds: Optional[float]

    def open(self) -> None:
        """Read what is to be done; called once, before the first step."""

    def next_bytes(self) -> int:
        """Return the planned bytes of the next step."""
        raise NotImplementedError

    def step(self) -> Optional[str]:
        """Do the next step. Returns how the stream has ended, ``done`` or ``failed``, or ``None`` if there is more."""
        raise NotImplementedError

    def give_up(self, error: BaseException) -> None:
        """Stop what the running step has started, and report it as failed with ``error``; there is no further step.

        Called from another thread than :meth:`step`, which may never return, or after :meth:`open` or :meth:`step` has
        raised ``error``.
        """


class _Worker:
    """A thread, and what it works on."""

    def __init__(self, run: Callable[[_Worker], None], number: int) -> None:
        self.number = number
        self.stream: Optional[Steps] = None
        self.num_bytes = 0
        self.since = 0.0
        self.is_given_up = False
        self.has_ended = False
        # a daemon, so that a step that hangs does not keep the process alive
        self.thread = threading.Thread(target=run, args=(self,), name=f"fds-fleet-{number}", daemon=True)


class FleetSchedule:
    """Works off the streams of a fleet in threads.

    Args:
        streams: The streams.
        parallelism: Number of steps at the same time.
        max_bytes_in_flight: Most planned bytes of the steps that run at the same time; a larger step runs alone.
        stop_on_failure: Whether no step is started after a stream has failed.
        is_late: Whether no step is to be started any more, asked before each step.
        on_poll: Called by the thread in :meth:`run` whenever something may have changed.
        line_seconds: Time between two lines about the fleet.
        poll_seconds: Longest time until a timeout or a dead thread is noticed.
    """

    def __init__(
        self,
        streams: Sequence[Steps],
        parallelism: int,
        *,
        max_bytes_in_flight: Optional[int] = None,
        stop_on_failure: bool = False,
        is_late: Callable[[], bool] = lambda: False,
        on_poll: Callable[[], object] = lambda: None,
        line_seconds: float = LINE_SECONDS,
        poll_seconds: float = 1.0,
    ) -> None:
        #: By stream, how it has ended: done, failed, or left.
        self.ended: Dict[str, str] = {}
        #: Number of steps that have ended, by stream.
        self.steps: Dict[str, int] = {}
        self._streams = streams
        self._parallelism = parallelism
        self._max_bytes = max_bytes_in_flight
        self._stop_on_failure = stop_on_failure
        self._is_late = is_late
        self._on_poll = on_poll
        self._line_seconds = line_seconds
        self._poll_seconds = poll_seconds
        self._queue: Deque[Steps] = deque(sorted(streams, key=lambda stream: -stream.num_bytes))
        self._opened: Dict[str, int] = {}
        self._overtaken: Counter[str] = Counter()
        self._workers: List[_Worker] = []
        self._given_up: List[_Worker] = []
        self._has_stopped = False
        self._changed = threading.Condition()

    @property
    def has_hanging_threads(self) -> bool:
        """Whether a step that was given up is still running."""
        return any(worker.thread.is_alive() for worker in self._given_up)

    def run(self) -> Dict[str, str]:
        """Work until every stream has ended; return how, by stream."""
        with self._changed:
            for _ in range(min(self._parallelism, len(self._streams))):
                self._start_worker()
        told = time.monotonic()
        while True:
            with self._changed:
                if len(self.ended) == len(self._streams):
                    break
                self._changed.wait(self._until_next(told))
                late = self._overdue()
            for worker in late:
                self._give_up(worker)
            self._poll()
            if time.monotonic() - told >= self._line_seconds:
                told = time.monotonic()
                print(self.describe(), flush=True)
        return dict(self.ended)

    def stop(self) -> None:
        """Start no further step; what runs goes on to its end."""
        with self._changed:
            self._has_stopped = True
            self._changed.notify_all()

    def describe(self) -> str:
        """Return the state of the fleet as one line for people."""
        with self._changed:
            ends = Counter(self.ended.values())
            running = sum(worker.stream is not None and not worker.is_given_up for worker in self._workers)
            done, total = ends["done"], len(self._streams)
            parts = [f"{done} of {total} streams done", f"{running} running"]
            parts += [f"{ends[kind]} {kind}" for kind in ("failed", "left") if ends[kind]]
            waiting = total - len(self.ended) - running
            return f"FDS fleet: {', '.join([*parts, f'{waiting} waiting'])}"

    # In the threads ----------------------------------------------------------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while (stream := self._take(worker)) is not None:
            if stream.name in self._opened:
                self._step(worker, stream)
            else:
                self._open(worker, stream)
        worker.has_ended = True

    def _open(self, worker: _Worker, stream: Steps) -> None:
        try:
            stream.open()
            num_bytes = stream.next_bytes()
        except BaseException as error:  # noqa: BLE001 - also what would end a thread: the other streams go on
            self._failed(worker, stream, error)
            return
        with self._changed:
            if worker.is_given_up:
                return
            self._opened[stream.name] = num_bytes
            self._release(worker)
            self._queue.appendleft(stream)

    def _step(self, worker: _Worker, stream: Steps) -> None:
        try:
            outcome = stream.step()
            num_bytes = 0 if outcome is not None else stream.next_bytes()
        except BaseException as error:  # noqa: BLE001 - as above
            self._failed(worker, stream, error)
            return
        with self._changed:
            if worker.is_given_up:
                return
            self.steps[stream.name] = self.steps.get(stream.name, 0) + 1
            self._release(worker)
            if outcome is not None:
                self._end(stream, outcome)
            else:
                self._opened[stream.name] = num_bytes
                self._queue.append(stream)

    def _failed(self, worker: _Worker, stream: Steps, error: BaseException) -> None:
        """End a stream whose step raised instead of reporting a failure."""
        with self._changed:
            if worker.is_given_up:
                return
        self._report(stream, error)
        with self._changed:
            self._release(worker)
            self._end(stream, "failed")

    def _take(self, worker: _Worker) -> Optional[Steps]:
        """Wait for a stream with a step that may start; ``None``: this thread is no longer needed."""
        with self._changed:
            while not worker.is_given_up:
                if self._queue and (self._has_stopped or self._is_late()):
                    for left in self._queue:
                        self.ended[left.name] = "left"
                    self._queue.clear()
                    self._changed.notify_all()
                if len(self.ended) == len(self._streams):
                    return None
                stream = self._next()
                if stream is not None:
                    worker.stream, worker.since = stream, time.monotonic()
                    worker.num_bytes = self._opened.get(stream.name, 0)
                    return stream
                self._changed.wait(self._poll_seconds)
            return None

    def _next(self) -> Optional[Steps]:
        in_flight = sum(worker.num_bytes for worker in self._workers)
        is_idle = not any(worker.stream is not None for worker in self._workers)
        for position, stream in enumerate(self._queue):
            num_bytes = self._opened.get(stream.name)
            # an unopened stream has no bytes yet: opening it is cheap
            if num_bytes is None or self._max_bytes is None or is_idle or in_flight + num_bytes <= self._max_bytes:
                del self._queue[position]
                for other in list(self._queue)[:position]:
                    self._overtaken[other.name] += num_bytes is not None
                return stream
            if self._overtaken[stream.name] >= _OVERTAKEN:
                # otherwise small steps would keep a large one waiting for ever
                return None
        return None

    def _release(self, worker: _Worker) -> None:
        worker.stream, worker.num_bytes = None, 0
        self._changed.notify_all()

    def _end(self, stream: Steps, outcome: str) -> None:
        self.ended[stream.name] = outcome
        if outcome == "failed" and self._stop_on_failure:
            self._has_stopped = True
        self._changed.notify_all()

    # In the thread of run() --------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        worker = _Worker(self._work, len(self._workers) + len(self._given_up))
        self._workers.append(worker)
        worker.thread.start()

    def _until_next(self, told: float) -> float:
        """Return the seconds until the next line or timeout, at most :attr:`_poll_seconds`."""
        now = time.monotonic()
        ends = [
            worker.since + worker.stream.timeout_seconds - now
            for worker in self._workers
            if worker.stream is not None and worker.stream.timeout_seconds is not None
        ]
        return max(0.0, min([self._poll_seconds, told + self._line_seconds - now, *ends]))

    def _overdue(self) -> List[_Worker]:
        """Take the threads that are over time or dead out of the fleet, each with its stream; replace them."""
        now = time.monotonic()
        found = []
        for worker in list(self._workers):
            stream = worker.stream
            limit = None if stream is None else stream.timeout_seconds
            is_over_time = limit is not None and now - worker.since >= limit
            is_dead = not worker.thread.is_alive() and not worker.has_ended
            if not is_over_time and not is_dead:
                continue
            worker.is_given_up = True
            self._workers.remove(worker)
            self._given_up.append(worker)
            self._start_worker()
            if stream is not None:
                found.append(worker)
        return found

    def _give_up(self, worker: _Worker) -> None:
        stream: Any = worker.stream
        took = timedelta(seconds=time.monotonic() - worker.since)
        if worker.thread.is_alive():
            error: Exception = RefusalError(
                Reason.BATCH_TIMED_OUT,
                f"the batch was not finished after {format_duration(took)}, the batch_timeout of the stream. Its "
                "Spark jobs were cancelled; a retry works on the same rows. Find out what it waits for, or raise "
                "batch_timeout",
                retryable=True,
            )
        else:
            error = RuntimeError(f"the thread that worked on the batch ended after {format_duration(took)}")
        # in a thread of its own: storage or Spark may hang too
        thread = threading.Thread(target=self._report, args=(stream, error), name="fds-give-up", daemon=True)
        thread.start()
        thread.join(_GIVE_UP_SECONDS)
        with self._changed:
            self.steps[stream.name] = self.steps.get(stream.name, 0) + 1
            self._end(stream, "failed")

    def _report(self, stream: Steps, error: BaseException) -> None:
        try:
            stream.give_up(error)
        except BaseException as second:  # noqa: BLE001 - the stream has no report then, which the run sees
            with suppress(Exception):
                print(f"FDS stream {stream.name}: no report could be written: {redacted(str(second))}", flush=True)
                print(redacted("".join(traceback.format_exception(None, second, None))), file=sys.stderr, flush=True)

    def _poll(self) -> None:
        try:
            self._on_poll()
        except Exception as error:  # noqa: BLE001 - a hint that is missing costs time, not rows
            with suppress(Exception):
                print(f"FDS fleet: its progress could not be noted: {redacted(str(error))}", flush=True)
