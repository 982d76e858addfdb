"""Processes forked from one that has already loaded what they need: an import costs seconds, a fork milliseconds.

A host is a process that reads one JSON line per request from standard input, and forks a process for each. A forked
process has its own session, process group and exit code, like a started one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Forked:
    """A process of a host, with the part of ``subprocess.Popen`` that is used here."""

    def __init__(self, pid: int, ended: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """Return the exit code, or ``None`` while it runs."""
        if self.returncode is None:
            with suppress(FileNotFoundError):
                self.returncode = int(self._ended.read_text())
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL to it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait for its end."""
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            pause.wait(0.02)
        return code


class ForkHost:
    """A host, started with ``python -m module``; one thread at a time sends requests, its processes run in parallel."""

    def __init__(self, module: str, log: Path, env: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        if (said := self._answer()) != "ready":
            raise RuntimeError(f"{module} did not start: {said} {log.read_text()[-3000:]}")

    def fork(self, out: Path, err: Path, cwd: Path, **request: Any) -> Forked:
        """Start a process; its output goes to two files."""
        ended = out.with_name(f"{out.name}.ended")
        request |= {"out": str(out), "err": str(err), "cwd": str(cwd), "ended": str(ended)}
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return Forked(int(self._answer()), ended)

    def stop(self) -> None:
        """End the host."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._log.close()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return line[7:].strip()
        return "nothing"


def load(package: str, *rooms: str) -> None:
    """Import all modules of these sub-packages: a command imports only what it uses, and each process anew."""
    for room in rooms:
        found = importlib.import_module(f"{package}.{room}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)


def serve(play: Callable[[dict[str, Any]], None]) -> None:
    """Act as a host, once everything is loaded; returns in each forked process, when ``play`` does."""
    # loaded code may print; answers go to the caller
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ended: dict[int, Path] = {}
    # what is loaded is not searched for garbage, and so not copied, in each forked process
    gc.freeze()
    print("ANSWER ready", file=answers, flush=True)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(ended)
        if 0 in ready:
            # one request at a time: the caller waits for the answer
            line = os.read(0, 1 << 20)
            if not line:
                return None
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number in (woken, wake):
                    os.close(number)
                answers.close()
                _enter(request)
                return play(request)
            ended[pid] = Path(request["ended"])
            print(f"ANSWER {pid}", file=answers, flush=True)


def _enter(request: dict[str, Any]) -> None:
    """Set up what a started process would have."""
    os.setsid()
    for number, place in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        opened = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["cwd"])


def _reap(ended: dict[int, Path]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if (place := ended.pop(pid, None)) is not None:
                draft = place.with_suffix(".draft")
                with suppress(FileNotFoundError):
                    # the scenario may have ended, and its folder removed
                    draft.write_text(str(os.waitstatus_to_exitcode(status)))
                    draft.replace(place)
