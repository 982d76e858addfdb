"""A DAG that runs all the time on the real stack, and the faults that hit it."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil

from airflow_provider_fds.fault_points import ASKED_LATER, Fault
from airflow_provider_fds.source.offset import Offset
from tests.chaos.actors import state_of, wait_until
from tests.chaos.lake import Lake, Writer, judge
from tests.chaos.tally import SCHEDULER, TRIGGERER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_stack import AirflowStack

    from tests.chaos.tally import Tally


@dataclass(frozen=True)
class StackLake(Lake):
    """A lake whose stream is run by a DAG of the stack; the checkpoint is an Airflow Variable."""

    stack: AirflowStack | None = None

    def shown(self) -> dict[str, Any]:
        assert self.stack is not None
        found = dict(json.loads(self.stack.client.variables()[f"fds.{self.stream}"]))
        return found | {"offset": found["offset"] if isinstance(found["offset"], str) else json.dumps(found["offset"])}


@dataclass(frozen=True)
class Stalled:
    """A process that is stopped at a point, together with the processes that report to Airflow for it."""

    fault: Fault
    #: In the order in which they continue: the driver, if it is one; the task; the task's supervisor.
    process_ids: tuple[int, ...]
    run: str
    task: str
    try_number: int

    def go_on(self) -> None:
        """Continue all and wait until the task has ended; a driver is done before anything can end it."""
        *drivers, task, supervisor = self.process_ids
        for process_id in self.process_ids:
            assert state_of(process_id) == "T", f"{process_id} of {self.fault} does not stand still any more"
        for driver in drivers:
            os.kill(driver, signal.SIGCONT)
            wait_until(lambda driver=driver: state_of(driver) is None, f"driver {driver}, after {self.fault}, to end")
        os.kill(task, signal.SIGCONT)
        os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: state_of(task) is None, f"task {task}, after {self.fault}, to end")


class ContinuousDag:
    """A DAG of ``dags/chaos.py``: one run after another."""

    def __init__(self, lake: StackLake, marks: Path, writer: Writer, tally: Tally) -> None:
        assert lake.stack is not None
        self.lake = lake
        self.stack: AirflowStack = lake.stack
        self.writer = writer
        self.tally = tally
        self._marks = marks

    # -- faults for the processes that start from now on

    def hit(self, fault: Fault, kind: str, *, place: str | None = None) -> int:
        """Request a fault, wait until it has hit a process, and return its id."""
        mark = self._marks / str(fault)
        mark.unlink(missing_ok=True)
        self._ask(str(fault))
        process_id = int(wait_until(lambda: mark.exists() and mark.read_text(), f"{fault}; {self.said()}"))
        self._ask("")
        self.tally.hit(kind, place or fault.point)
        return process_id

    def kill_at(self, point: str, effect: str = "kill") -> None:
        """Let a process reach the point and die there."""
        kind = "stack, killed" if effect == "kill" else "stack, group"
        process_id = self.hit(Fault(effect, point), kind)
        wait_until(lambda: state_of(process_id) is None, f"{process_id} to be gone")

    def stop_at(self, point: str) -> Stalled:
        """Let a process reach the point and stop there, together with its task and the task's supervisor.

        Like a paused machine: Airflow is not notified.
        """
        fault = Fault("stop", point)
        process_id = self.hit(fault, "stack, stalled")
        wait_until(lambda: state_of(process_id) in ("T", None), f"{process_id} to stop at {fault}")
        assert state_of(process_id) == "T", f"{fault} did not stop process {process_id}"
        is_driver = point.startswith("driver.")
        task = self._task_of(process_id) if is_driver else process_id
        supervisor = psutil.Process(task).ppid()
        run = self.current()
        for above in (supervisor, task):
            os.kill(above, signal.SIGSTOP)
        return Stalled(fault, (process_id, task, supervisor) if is_driver else (task, supervisor), *run)

    def orphan_at(self, point: str) -> None:
        """Kill the task when its driver reaches the point; the driver continues while the task is retried."""
        driver = self.hit(Fault("stop", point), "stack, orphaned")
        wait_until(lambda: state_of(driver) in ("T", None), f"{driver} to stop at {point}")
        os.kill(self._task_of(driver), signal.SIGKILL)
        os.kill(driver, signal.SIGCONT)
        wait_until(lambda: state_of(driver) is None, f"driver {driver} to end")

    def _task_of(self, driver: int) -> int:
        """Return the task's process above a driver: the first one that does not belong to Spark."""
        for parent in psutil.Process(driver).parents():
            if parent.name() != "java" and "spark-submit" not in " ".join(parent.cmdline()):
                return parent.pid
        raise AssertionError(f"driver {driver} has no task")

    def kill_the_scheduler(self) -> None:
        """Kill it, with the supervisors of all tasks, while a driver writes; the task itself keeps running."""
        driver = self.hit(Fault("note", "driver.started"), "stack, process", place=SCHEDULER)
        self.stack.kill_process("scheduler")
        self.stack.start_process("scheduler")
        wait_until(lambda: state_of(driver) is None, f"driver {driver} to end")

    def kill_the_triggerer(self) -> None:
        """Kill it while it waits for the source, then commit to the source and start it again."""
        with self.writer.quiet():
            run = self.await_state("wait", "deferred")
            self.stack.kill_process("triggerer")
            self.writer.append()
        self.stack.start_process("triggerer")
        self.tally.hit("stack, process", TRIGGERER)
        wait_until(lambda: self.stack.client.tasks(self.lake.stream, run)["wait"]["state"] == "success", self.said())

    # -- what Airflow reports

    def current(self) -> tuple[str, str, int]:
        """Return run, task and try of the current task."""

        def running() -> tuple[str, str, int] | None:
            for run in self.stack.client.runs(self.lake.stream)[:3]:
                for name, task in self.stack.client.tasks(self.lake.stream, run["dag_run_id"]).items():
                    if task["state"] == "running":
                        return run["dag_run_id"], name, task["try_number"]
            return None

        found: tuple[str, str, int] = wait_until(running, "a task to run")
        return found

    def await_retry(self, stalled: Stalled) -> None:
        """Wait until a later attempt of the task has succeeded."""

        def is_through() -> bool:
            task = self.stack.client.tasks(self.lake.stream, stalled.run)[stalled.task]
            return task["state"] in ("success", "skipped") and task["try_number"] > stalled.try_number

        wait_until(is_through, f"an attempt after {stalled}; {self.said()}")

    def await_state(self, task: str, state: str) -> str:
        """Wait until the newest run's task has the state, and return the run."""

        def found() -> str | None:
            runs = self.stack.client.runs(self.lake.stream)
            if not runs:
                return None
            run = str(runs[0]["dag_run_id"])
            tasks = self.stack.client.tasks(self.lake.stream, run)
            return run if task in tasks and tasks[task]["state"] == state else None

        run: str = wait_until(found, f"{task} to be {state}; {self.said()}")
        return run

    def fail(self, run: str) -> None:
        """Mark a run failed, as a person does, and start the next one, because the scheduler creates none after such a
        run.
        """
        path = f"/api/v2/dags/{self.lake.stream}/dagRuns/{run}"
        self.stack.client.call("PATCH", path, body={"state": "failed"})
        self.stack.client.trigger(self.lake.stream)

    def said(self) -> str:
        """Return a few lines that describe the current state."""
        with suppress(Exception):
            lines = []
            for run in self.stack.client.runs(self.lake.stream)[:3]:
                tasks = self.stack.client.tasks(self.lake.stream, run["dag_run_id"])
                states = {name: (task["state"], task["try_number"]) for name, task in tasks.items()}
                lines.append(f"{run['dag_run_id']} {run['state']} {states}")
            return "; ".join(lines) + f"; logs in {self.stack.home}"
        return f"Airflow does not answer; logs in {self.stack.home}"

    def is_up_to_date(self) -> bool:
        """Whether the stream has committed the newest version, and Airflow shows it."""
        ledger = self.lake.ledger()
        state = ledger.find()
        if state.position is None or state.planned:
            return False
        behind = Offset.from_json(state.position).version != self.writer.commits
        return not behind and int(self.lake.shown()["n"]) == ledger.n

    def _ask(self, text: str) -> None:
        # no process may read half of it
        new = self._marks / "new"
        new.write_text(text, encoding="ascii")
        new.replace(self._marks / ASKED_LATER)


@contextmanager
def a_continuous_dag(
    stack: AirflowStack, lake: Path, name: str, marks: Path, seed: int, tally: Tally
) -> Iterator[ContinuousDag]:
    """Run a DAG on a new source while a writer commits to it; afterwards bring it up to date and judge it."""
    here = StackLake(lake / name, str(lake / "staging"), pause_seconds=6, stream=name, stack=stack)
    here.root.mkdir(parents=True)
    stack.wait(lambda: stack.client.has_dag(name), 90, f"DAG {name} was not found")
    with Writer(here, seed) as writer:
        dag = ContinuousDag(here, marks, writer, tally)
        try:
            stack.client.unpause(name)
            yield dag
            writer.stop()
            wait_until(dag.is_up_to_date, f"the stream to be up to date; {dag.said()}")
        finally:
            dag._ask("")
            stack.client.call("PATCH", f"/api/v2/dags/{name}", body={"is_paused": True})
    tally.judged(judge(here, writer.keys))

    def problems() -> list[str]:
        return event_problems(stack.client.asset_events(name), writer.commits)

    # the last event comes with its task's success, a moment after the checkpoint
    wait_until(lambda: not problems(), "asset events without a gap up to the newest version")


def event_problems(events: list[dict[str, Any]], commits: int) -> list[str]:
    """Return where the asset events omit versions, or report one twice."""
    told = [(event["extra"]["first_version"], event["extra"]["last_version"]) for event in events]
    pairs = pairwise(told)
    problems = [f"{one} is followed by {other}" for one, other in pairs if other[0] != one[1] + 1]
    if not told or told[-1][1] != commits - 1:
        problems.append(f"the events of {commits} versions are {told}")
    return problems
