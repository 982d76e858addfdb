"""Points at which tests let a process die or stop; in production they do nothing.

A point is a line ``reach("…")`` between two steps whose effects outlive the process: after it, staging, sink or
checkpoint contain something new. A point only has an effect if the environment variable :data:`ASKED_BY` is set, which
is read once, when this module is imported. Standard library only, Python 3.9 syntax: the Spark driver has the same
points.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Final, NamedTuple

#: The faults to trigger: ``effect@point``, or ``effect@point#3`` for the third time the point is reached, comma
#: separated. Each fault happens once, however many processes inherit the variable.
ASKED_BY: Final = "FDS_TEST_FAULTS"

#: A value that refers to the file of this name in the folder, so that processes that start later can have other faults.
ASKED_LATER: Final = "later"

#: The folder that gets a file for each fault that happened: its name is the fault, its content the process id.
MARKS_IN: Final = "FDS_TEST_FAULT_MARKS"

#: Entries of the ledger that a run writes by itself, and after which it writes its checkpoint.
CHECKPOINTED_KINDS: Final = (
    "created", "opened", "bound", "ended", "planned", "claimed", "submitted", "advanced", "committed",
    "boundary", "interval_opened",
)  # fmt: skip

#: All entries with their own points; a process that requests an epoch leaves the checkpoint to the next run.
ENTRY_KINDS: Final = (*CHECKPOINTED_KINDS, "requested")

#: Each point's text says what has happened before it and what has not.
POINTS: Final[dict[str, str]] = {
    "ledger.read": "the checkpoint and the ledger have been read",
    "snapshot.before": "an initial snapshot is about to be frozen",
    "snapshot.after": "the frozen snapshot is in staging",
    "manifest.before": "a batch is planned, but its manifest is not written",
    "manifest.between": "the manifest's checksum is written, but its commit is not",
    "manifest.after": "the manifest is written, but no entry names it",
    **{f"entry.before.{kind}": f"the entry `{kind}` is about to be written" for kind in ENTRY_KINDS},
    **{f"entry.after.{kind}": f"the entry `{kind}` is written, but the checkpoint lags" for kind in ENTRY_KINDS},
    **{f"checkpoint.after.{kind}": f"the checkpoint has the entry `{kind}`" for kind in CHECKPOINTED_KINDS},
    "job.after": "the job is written for Spark",
    "submit.before": "spark-submit is about to start",
    "submit.after": "Spark has ended, but its reports are not read",
    "fold.before": "the run's entries are written, but their fold is not",
    "driver.started": "the driver has recorded that it starts a batch",
    "driver.rejects.before": "the driver is about to write the rejected rows of a batch",
    "driver.rejects.after": "the table of rejected rows has those of the batch, the sink has nothing of it",
    # in a database a second time, with the rows in a transaction that is not committed
    "driver.commit.before": "the driver has checked the sink and is about to write",
    "driver.commit.after": "the sink has the batch",
    "driver.report.before": "the batch is verified, but its report is not written",
    "driver.report.after": "the report is written",
    "fence.commit.before": "the driver has checked the sink and is about to write the fence",
    "fence.commit.after": "the sink has the fence",
    "fence.report.before": "the batches that landed before the fence are known, but its report is not written",
    "recover.before": "`fds recover` has read sink, ledger and checkpoint, and is about to write",
    "recover.between": "the mismatched checkpoint is removed, but the new one is not written",
    "watcher.found": "the watcher of an asset has found new data, but has not fired",
    "watcher.stored": "the event of a watcher is in Airflow's database, but its cursor has not moved",
}

EFFECTS: Final = {
    "kill": "SIGKILL to this process",
    "kill-group": "SIGKILL to its process group: for the driver, that is spark-submit, the JVM and this Python process",
    "stop": "SIGSTOP to this process, until something continues it",
    "note": "nothing but the mark",
}

_ASKED_FOR: Final = re.compile(r"(?P<effect>[a-z-]+)@(?P<point>[a-z._]+)(?:#(?P<nth>[1-9]\d*))?")


class Fault(NamedTuple):
    """A fault to trigger: ``effect`` when ``point`` is reached for the ``nth`` time (from 1)."""

    effect: str
    point: str
    nth: int = 1

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse ``effect@point#nth``.

        Raises:
            ValueError: The form is wrong, or the effect or point does not exist.
        """
        match = _ASKED_FOR.fullmatch(text)
        if match is None or match["effect"] not in EFFECTS or match["point"] not in POINTS:
            raise ValueError(f"{ASKED_BY}: {text!r} is not effect@point; effects {[*EFFECTS]}, points {[*POINTS]}")
        return cls(match["effect"], match["point"], int(match["nth"] or 1))

    def __str__(self) -> str:
        return f"{self.effect}@{self.point}" + (f"#{self.nth}" if self.nth > 1 else "")


class Armed:
    """The faults of one process, and how often it has reached each point."""

    def __init__(self, faults: list[Fault], marks: Path) -> None:
        self._faults = faults
        self._marks = marks
        self._reached: dict[str, int] = {}
        self._counting = threading.Lock()

    def reach(self, point: str) -> None:
        """Count the point; trigger its fault, if it is time."""
        with self._counting:
            count = self._reached[point] = self._reached.get(point, 0) + 1
        for fault in self._faults:
            if (fault.point, fault.nth) != (point, count) or not self._mark(fault):
                continue
            if fault.effect == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault.effect == "kill-group":
                os.killpg(os.getpgrp(), signal.SIGKILL)
            elif fault.effect == "stop":
                # to this thread, which must not run on while the others are being stopped
                signal.raise_signal(signal.SIGSTOP)

    def _mark(self, fault: Fault) -> bool:
        """Create the mark; return ``False`` if it exists."""
        try:
            with (self._marks / str(fault)).open("x", encoding="ascii") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True


def _armed() -> Armed | None:
    text = os.environ.get(ASKED_BY)
    if not text:
        return None
    marks = Path(os.environ[MARKS_IN])
    if text == ASKED_LATER:
        asked = marks / ASKED_LATER
        text = asked.read_text(encoding="ascii") if asked.exists() else ""
    if not text:
        return None
    print(f"{ASKED_BY} is set: this process is meant to fail ({text})", file=sys.stderr)  # noqa: T201
    return Armed([Fault.parse(part) for part in text.split(",")], marks)


_ARMED: Final = _armed()


def reach(point: str, kind: str = "") -> None:
    """Report that this process has reached a point of :data:`POINTS`; ``kind`` is the last part of its name, if any."""
    if _ARMED is not None:
        _ARMED.reach(f"{point}.{kind}" if kind else point)
