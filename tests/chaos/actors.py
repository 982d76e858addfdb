"""Processes of `fds run` that are instructed where to die or to stop."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import (
    EXIT_BATCH_FAILED,
    EXIT_CONFIGURATION,
    EXIT_LOST_POSITION,
    EXIT_OK,
    EXIT_STOPPED,
    EXIT_STORAGE,
)
from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN, Fault
from tests.adversary.forks import Forked, ForkHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.chaos.lake import Lake

ROOT = Path(__file__).parents[2]

#: No step of a run takes this long, even on a busy machine.
PATIENCE_SECONDS = 600

#: An overtaken process may end with these; 1 is the exit code of FDS when only its text explains the error.
ORDERLY = frozenset({EXIT_OK, 1, EXIT_CONFIGURATION, EXIT_STOPPED, EXIT_LOST_POSITION, EXIT_STORAGE, EXIT_BATCH_FAILED})


def wait_until(is_so: Callable[[], Any], what: str) -> Any:
    """Return the first true result of ``is_so``; give up after :data:`PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_SECONDS} s for {what}")
        time.sleep(0.02)
    return found


def state_of(process_id: int) -> str | None:
    """Return the state letter of a process (``T``: stopped), or ``None`` if it is gone."""
    try:
        letter = _stat(process_id)[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if letter == "Z" else letter


def parent_of(process_id: int) -> int:
    """Return the process that a process is a child of."""
    return int(_stat(process_id)[1])


def _stat(process_id: int) -> list[str]:
    return Path(f"/proc/{process_id}/stat").read_text(errors="replace").rpartition(")")[2].split()


@cache
def run_host() -> ForkHost:
    """Return the process from which all actors are forked: a start takes 0.3 s of CPU time less."""
    folder = Path(tempfile.mkdtemp())
    host = ForkHost("tests.chaos.run_host", folder / "host.log", {"PYTHONPATH": str(ROOT)})
    atexit.register(lambda: (host.stop(), shutil.rmtree(folder)))
    return host


@dataclass
class Actor:
    """A process of `fds run` and its fault."""

    lake: Lake
    process: Forked
    fault: Fault | None
    output: Path
    marks: Path
    #: The process that the fault hit: this one, or the driver's.
    hit: int | None = None

    def await_hit(self) -> bool:
        """Wait until the fault has hit; ``False`` if the process ended without reaching the point."""
        fault = self.fault
        assert fault is not None

        def marked() -> int | None:
            mark = self.marks / str(fault)
            # the mark exists a moment before its content
            return int(mark.read_text() or 0) or None if mark.exists() else None

        wait_until(lambda: marked() or self.process.poll() is not None, f"{fault}, in {self.said()[-3000:]}")
        self.hit = marked()
        if self.hit is None:
            return False
        if fault.effect == "stop":
            wait_until(lambda: state_of(self.hit or 0) in ("T", None), f"{self.hit} to stop at {fault}")
            assert state_of(self.hit) == "T", f"{fault} did not stop process {self.hit}: {self.said()[-3000:]}"
        return True

    def go_on(self) -> None:
        """Continue what was stopped."""
        assert self.hit is not None
        with suppress(ProcessLookupError):
            os.kill(self.hit, signal.SIGCONT)

    def await_end(self) -> int:
        """Wait for the end; an end with a Python traceback is a failure."""
        try:
            code = self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.fault} does not end: {self.said()[-3000:]}") from None
        assert "Traceback" not in self.said(), self.said()[-5000:]
        return code

    def end_lingering(self) -> None:
        """End a run that lingers, unless it ends with its driver: one whose report was there has a successor.

        A run with a successor ends after two more batches.
        """
        enough = self.said().count('"batch_id"') + 2
        wait_until(
            lambda: self.process.poll() is not None or self.said().count('"batch_id"') >= enough,
            f"{self.fault} to end its run, or batches after it, in {self.said()[-3000:]}",
        )
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)

    def said(self) -> str:
        """Return the output of the process."""
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL the process, not its children."""
        self.process.kill()
        self.process.wait()


def well_ended(actor: Actor) -> Actor:
    """Wait for the end of an undisturbed actor, and return it."""
    code = actor.await_end()
    assert code == EXIT_OK, f"what nothing disturbed ended with {code}: {actor.said()[-5000:]}"
    return actor


@dataclass
class Stage:
    """Starts and ends the actors of one round."""

    lake: Lake
    #: Port of the warm Spark; ``None``: each run has the Spark that the lake names.
    port: int | None
    actors: list[Actor] = field(default_factory=list)

    def start(self, fault: Fault | None = None, *, take_over: bool = False, more: tuple[str, ...] = ()) -> Actor:
        """Start a run, armed if a fault is given. A run whose driver is to be hit gets its own spark-submit.

        For a fault at the second time or later it lingers, so that it comes there.
        """
        has_own_spark = fault is not None and fault.point.startswith(("driver.", "fence."))
        arguments = [*self.lake.arguments(), *more]
        if take_over:
            arguments.append("--unlock")
        if fault is not None and fault.nth > 1:
            arguments += ["--linger", "10m"]
        elif has_own_spark:
            # one Spark application is enough for one fault
            arguments += ["--max-batches", "1"]
        if has_own_spark or self.port is None:
            return self.launch(["airflow_provider_fds.cli.main", *arguments], fault)
        return self.launch(["tests.chaos.warm_spark", str(self.port), *arguments], fault)

    def launch(self, module: list[str], fault: Fault | None = None) -> Actor:
        """Start a Python module with arguments, armed if a fault is given."""
        marks = self.lake.root / "marks" / f"{len(self.actors):03d}"
        marks.mkdir(parents=True)
        output = self.lake.root / f"run-{len(self.actors):03d}.txt"
        output.touch()
        environment = {MARKS_IN: str(marks), ASKED_BY: str(fault or "")}
        process = run_host().fork(output, output, ROOT, words=module, env=environment)
        actor = Actor(self.lake, process, fault, output, marks)
        self.actors.append(actor)
        return actor

    def run(self, *, take_over: bool = False) -> Actor:
        """Run to the end, which must be a success."""
        return well_ended(self.start(take_over=take_over))

    def command(self, *arguments: str, fault: Fault | None = None) -> Actor:
        """Start an `fds` command for the stream as a person does."""
        name, *others = arguments
        storage = [f"--storage-option={key}={value}" for key, value in self.lake.storage_options.items()]
        words = [name, self.lake.stream, "--staging", self.lake.staging, *storage, "--why", "a test", "--yes", *others]
        return self.launch(["airflow_provider_fds.cli.main", *words], fault)

    def move(self, *arguments: str) -> None:
        """Move the stream into a new epoch as a person does."""
        well_ended(self.command(*arguments))

    def end(self) -> None:
        """Kill everything that is left of this round: actors, and the Sparks that outlived theirs."""
        for actor in self.actors:
            with suppress(ProcessLookupError):
                os.killpg(actor.process.pid, signal.SIGKILL)
            actor.process.wait()
        for process_id in self.sparks():
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)

    def sparks(self) -> list[int]:
        """Return the processes whose command line names a file of this round's staging folder."""
        needle = os.fsencode(self.lake.staging.removeprefix("file://"))
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and int(folder.name) != os.getpid():
                with suppress(OSError):
                    if needle in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
        return found
