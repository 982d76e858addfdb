"""One scenario: a folder, a seed, the faults, and what the commands printed.

A scenario uses the package only through its commands and operators. Each command is a separate process in its own
process group, so that faults come from outside: signals, files, disks, clocks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.adversary.servers import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.adversary.airflow_host import AirflowHost
    from tests.adversary.command_host import CommandHost
    from tests.adversary.forks import Forked
    from tests.adversary.servers import Servers

#: The longest that a command may take; a machine with other work is slow.
TIMEOUT_SECONDS = 400

FDS = [sys.executable, "-m", "airflow_provider_fds.cli.main"]


class VerdictError(Exception):
    """The package did something that it must not do; the verdict names it."""

    def __init__(self, verdict: str, text: str, *, lost: int = 0, doubled: int = 0) -> None:
        super().__init__(f"{verdict}: {text}")
        self.verdict = verdict
        self.lost = lost
        self.doubled = doubled


class NotRunError(Exception):
    """The scenario cannot run here; the text says why."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    words: str
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def is_refused(self) -> bool:
        return self.code != 0

    def __str__(self) -> str:
        tail = " | ".join(line for line in (self.err or self.out).strip().splitlines()[-4:])
        return f"exit {self.code}: {tail[-700:]}"


def when(condition: Callable[[], bool], is_running: Callable[[], bool], timeout: float) -> bool:
    """Wait until the condition holds; ``False`` if the process that could fulfil it ended first."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    rounds = 0
    while time.monotonic() < deadline:
        if condition():
            return True
        rounds += 1
        if rounds % 50 == 0 and not is_running():
            return condition()
        pause.wait(0.008)
    return False


class Running:
    """A running command; the processes that it started are found by its process tree."""

    def __init__(self, scene: Scene, words: list[str], env: dict[str, str], log: Path) -> None:
        self.scene = scene
        self.words = " ".join(words)
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        self.process: subprocess.Popen[bytes] | Forked
        if "LD_PRELOAD" not in env:
            self.process = scene.commands().fork(self._out, self._err, scene.root, words=words, env=env)
        else:
            with self._out.open("wb") as out, self._err.open("wb") as err:
                self.process = subprocess.Popen(
                    [*FDS, *words],
                    env={**os.environ, **env},
                    stdout=out,
                    stderr=err,
                    cwd=scene.root,
                    start_new_session=True,
                )
        self._known: set[int] = {self.process.pid}

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> Outcome:
        """Wait for its end."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait(30)
            raise VerdictError("stuck", f"`fds {self.words}` did not end within {timeout} s: {self._tail()}") from None
        found = Outcome(self.words, self.process.returncode, self._out.read_text("utf-8", "replace"), self._tail())
        self.scene.note(f"ended: {found}")
        return found

    def signal(self, number: int, which: str = "group") -> list[int]:
        """Send a signal from outside.

        Args:
            number: The signal.
            which: ``group`` (everything that the command started), ``python`` (the command itself), ``jvm`` (only its
                JVMs).
        """
        hit = []
        for pid in self.tree(which):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                hit.append(pid)
        self.scene.note(f"{signal.Signals(number).name} to {which} of `{self.words[:40]}…`: {len(hit)} processes")
        return hit

    def tree(self, which: str = "group") -> list[int]:
        """Return process ids: of the command, its JVMs, or everything that belongs to it."""
        if which == "python":
            return [self.process.pid]
        parents: dict[int, list[int]] = {}
        names: dict[int, str] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with suppress(OSError, IndexError, ValueError):
                    head, _, tail = (folder / "stat").read_text().rpartition(")")
                    names[int(folder.name)] = head.partition("(")[2]
                    parents.setdefault(int(tail.split()[1]), []).append(int(folder.name))
        todo = [pid for pid in self._known if pid in names]
        while todo:
            for child in parents.get(todo.pop(), ()):
                if child not in self._known:
                    self._known.add(child)
                    todo.append(child)
        alive = [pid for pid in self._known if pid in names]
        return [pid for pid in alive if names[pid] == "java"] if which == "jvm" else alive

    def when(self, condition: Callable[[], bool], timeout: float = 120) -> bool:
        """Wait until the condition holds; ``False`` if the command ended first."""

        def is_running() -> bool:
            # remember its children, which get another parent once it is gone
            self.tree()
            return self.is_running

        return when(condition, is_running, timeout)

    def _tail(self) -> str:
        return self._err.read_text("utf-8", "replace")[-6000:]


@dataclass
class Scene:
    """One running scenario."""

    kind: str
    seed: int
    root: Path
    servers: Servers
    host: Callable[[], AirflowHost]
    commands: Callable[[], CommandHost]
    rng: random.Random = field(init=False)
    timeline: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    running: list[Any] = field(default_factory=list)
    cleanups: list[Callable[[], None]] = field(default_factory=list)
    refusals: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.kind} {self.seed}")
        self.root.mkdir(parents=True)

    def note(self, text: str) -> None:
        """Write a line of the timeline."""
        self.timeline.append(f"{time.monotonic() - self._began:7.2f} {text}")

    def start(self, *words: str, shift: str = "", env: dict[str, str] | None = None) -> Running:
        """Start a command and leave it running."""
        self.note(f"starts `fds {' '.join(words)}`" + (f" with the clock {shift}" if shift else ""))
        log = self.root / f"command-{len(self.running):02}"
        found = Running(self, list(words), {**clock(shift), **(env or {})}, log)
        self.running.append(found)
        return found

    def fds(self, *words: str, shift: str = "", env: dict[str, str] | None = None) -> Outcome:
        """Run a command to its end."""
        found = self.start(*words, shift=shift, env=env).wait()
        self.outcomes.append(found)
        self.refusals += found.is_refused
        last = found.err.rpartition("Traceback (most recent call last)")
        if last[1] and "\nfds: " not in last[2]:
            raise VerdictError("silent", f"`fds {found.words}` ended with a traceback: {found.err[-1500:]}")
        return found

    def end(self) -> None:
        """End everything that the scenario started."""
        for running in self.running:
            for pid in running.tree():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(30)
        for cleanup in reversed(self.cleanups):
            cleanup()


@dataclass
class Stream:
    """A stream as a person at the command line sees it."""

    scene: Scene
    table: Path
    name: str = "orders"
    sink: Path = Path()
    staging: Path = Path()
    checkpoint: Path = Path()
    options: tuple[str, ...] = ("starting_version=0",)
    arguments: tuple[str, ...] = ()
    #: Where its runs have Spark; none: on a Connect server, or in this machine.
    spark: tuple[str, ...] = ()
    #: Deployment of the commands that move it.
    deployment: str | None = None

    def __post_init__(self) -> None:
        root = self.scene.root
        self.sink = root / "bronze" if self.sink == Path() else self.sink
        self.staging = root / "staging" if self.staging == Path() else self.staging
        self.checkpoint = root / "checkpoint.json" if self.checkpoint == Path() else self.checkpoint

    def describe(self, *more: str, shift: str = "", via: str = "connect") -> list[str]:
        where = self.spark or ("--master", "local[1]")
        if via == "connect" and not self.spark:
            where = ("--remote", self.scene.servers.get(shift).url)
        options = [word for option in self.options for word in ("--option", option)]
        return [
            *("run", str(self.table), "--sink", str(self.sink), "--staging", str(self.staging)),
            *("--checkpoint", str(self.checkpoint), "--stream", self.name),
            *where,
            *options,
            *self.arguments,
            *more,
        ]

    def run(self, *more: str, shift: str = "", via: str = "connect") -> Outcome:
        """Run it until it is up to date or refuses."""
        return self.scene.fds(*self.describe(*more, shift=shift, via=via), shift=shift)

    def start(self, *more: str, shift: str = "", via: str = "connect", env: dict[str, str] | None = None) -> Running:
        """Start a run and leave it running."""
        return self.scene.start(*self.describe(*more, shift=shift, via=via), shift=shift, env=env)

    def plan(self, *more: str) -> Outcome:
        """Plan the next batches without loading them, as the first of three tasks does."""
        options = [word for option in self.options for word in ("--option", option)]
        return self.scene.fds(
            "plan", str(self.table), "--stream", self.name, "--staging", str(self.staging), *options, *more
        )

    def move(self, name: str, *more: str, why: bool = True, yes: bool = True) -> Outcome:
        """Run a command as a person does."""
        words = [name, self.name, "--staging", str(self.staging), *more]
        if name == "rewind" and "--sink-rows" not in more:
            words += ["--sink-rows", "keep"]
        if why:
            words += ["--why", f"a careless {name}"]
        if yes and name not in ("hold", "resume"):
            words.append("--yes")
        return self.scene.fds(*words)

    def status(self) -> Outcome:
        return self.scene.fds("status", self.name, "--staging", str(self.staging), "--output", "json")

    def history(self) -> list[dict[str, Any]]:
        """Return the entries as ``fds history --output json`` prints them."""
        said = self.scene.fds("history", self.name, "--staging", str(self.staging), "--all", "--output", "json")
        return [json.loads(line) for line in said.out.splitlines() if line.startswith("{")]


def files(folder: Path, pattern: str) -> set[str]:
    """Return the names of files below a folder that may not exist, or may be changing."""
    with suppress(OSError):
        return {str(path) for path in folder.glob(pattern)}
    return set()


def grown(folder: Path, pattern: str) -> Callable[[], bool]:
    """Return a condition that holds once a new file matches the pattern."""
    before = files(folder, pattern)
    return lambda: bool(files(folder, pattern) - before)


def staged(stream: Stream) -> Iterator[Path]:
    """Return the files of a stream's staging folder."""
    yield from (path for path in stream.staging.rglob("*") if path.is_file())
