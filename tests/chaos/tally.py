"""The outcomes of the faults, counted by point and kind, and their table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.fault_points import POINTS

if TYPE_CHECKING:
    from tests.chaos.lake import Verdict

#: What is done to a process.
KINDS = {
    "killed": "SIGKILL, then a retry",
    "group": "SIGKILL to spark-submit, JVM and driver, then a retry",
    "stalled": "SIGSTOP until a retry has finished, then SIGCONT",
    "orphaned": "the driver is stalled, its `fds run` is killed, a retry finishes, the driver continues",
    "pair, first": "the first of two: stalled until the second was hit and a third has finished",
    "pair, second": "the second of two: killed or stalled while the first is stalled",
    "cluster": "drivers in a standalone cluster: SIGKILL to `fds run` or to the driver, or what the row says",
    "stack, killed": "with Airflow: SIGKILL to a task's process, or to the driver's, then Airflow's retry",
    "stack, group": "with Airflow: SIGKILL to the task, spark-submit, JVM and driver at once",
    "stack, stalled": "with Airflow: driver, task and supervisor are stalled until Airflow's retry has succeeded",
    "stack, orphaned": "with Airflow: the task is killed, its driver continues beside the retry",
    "stack, process": "with Airflow: SIGKILL to one of its own processes, which is started again",
}


#: What is counted besides the faults.
COUNTS = ("rounds", "rows", "batches", "lost", "doubled")


@dataclass
class Tally:
    """Faults that hit, and rows that were lost or doubled, over all rounds of a session."""

    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    rounds: int = 0
    rows: int = 0
    batches: int = 0
    lost: int = 0
    doubled: int = 0

    def hit(self, kind: str, point: str) -> None:
        """Count a fault that was seen to hit."""
        assert kind in KINDS
        assert point in (*POINTS, *OTHER_PLACES)
        self.faults[kind, point] += 1

    def judged(self, verdict: Verdict) -> None:
        """Count a round, and fail if it is not as expected."""
        self.rounds += 1
        self.rows += verdict.rows
        self.batches += verdict.batches
        self.lost += verdict.lost
        self.doubled += verdict.doubled
        assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, ())

    def add(self, other: Tally) -> None:
        """Add the counts of another session, or of a part of one."""
        self.faults += other.faults
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, before: Tally) -> Tally:
        """Return what was added since the copy ``before`` was made."""
        counts = {name: getattr(self, name) - getattr(before, name) for name in COUNTS}
        return Tally(self.faults - before.faults, **counts)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        faults = [[kind, point, count] for (kind, point), count in self.faults.items()]
        return {"faults": faults, **{name: getattr(self, name) for name in COUNTS}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Tally:
        """Return the value on which :meth:`to_json` was called."""
        faults = Counter({(kind, point): count for kind, point, count in value["faults"]})
        return cls(faults, **{name: value[name] for name in COUNTS})

    @property
    def total(self) -> int:
        return self.faults.total()

    @property
    def not_reached(self) -> list[str]:
        """Points at which nothing was done to any process."""
        hit = {point for _, point in self.faults}
        return [point for point in POINTS if point not in hit]

    def summary(self) -> str:
        """Return one line."""
        return (
            f"{self.total} faults in {self.rounds} rounds, {self.batches:,} batches, {self.rows:,} rows: "
            f"{self.lost} lost, {self.doubled} doubled"
        )

    def written_into(self, page: str, *, asked: str) -> str:
        """Return a page with summary and table between its two comments."""
        before, begin, rest = page.partition(_BEGIN)
        _, end, after = rest.partition(_END)
        if not (begin and end):
            raise ValueError(f"the page has no {_BEGIN} … {_END}")
        legend = "\n".join(f"- *{kind}*: {what}" for kind, what in KINDS.items())
        today = datetime.now(UTC).date()
        head = f"{today}, `make chaos {asked}`: **{self.summary()}.**"
        return f"{before}{begin}\n{head}\n\n{self.table()}\n\n{legend}\n{end}{after}"

    def table(self) -> str:
        """Return the counts by point and kind as a table in Markdown."""
        kinds = [kind for kind in KINDS if any(found == kind for found, _ in self.faults)]
        lines = ["| point | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds)]
        for point in [*POINTS, *OTHER_PLACES]:
            counts = [self.faults[kind, point] for kind in kinds]
            if any(counts):
                name = point if point in OTHER_PLACES else f"`{point}`"
                lines.append(f"| {name} | " + " | ".join(str(count or "") for count in counts) + " |")
        sums = [sum(count for (found, _), count in self.faults.items() if found == kind) for kind in kinds]
        lines.append("| all | " + " | ".join(map(str, sums)) + " |")
        return "\n".join(lines)


_BEGIN = "<!-- chaos: written by `make chaos` -->"
_END = "<!-- chaos: end -->"

#: A kill at no particular point, but at a random time while the driver writes.
ANY_MOMENT = "any moment of the write"

#: Airflow's processes, and what they are doing.
SCHEDULER = "the scheduler and all tasks' supervisors, while Spark writes"
TRIGGERER = "the triggerer, while a sensor waits"

#: What happens to a cluster, its drivers, or the folder that both sides share, while a driver runs.
ORPHAN = "`fds run` is killed, and its driver ends before the retry"
MASTER_KILLED = "the master is killed and started again, while a driver runs"
MASTER_SILENT = "the master stands still and continues, while a driver runs"
DRIVER_KILLED = "the master is asked to kill the driver, while it writes"
STAGING_AWAY = "staging cannot be reached for a time, while a driver runs"
STORE_AWAY = "the S3 server of staging breaks connections, then answers nothing for a time, while a driver runs"
ID_AGAIN = "a master without recovery gives the id of a driver to another one, while both run"
OF_CLUSTERS = (ORPHAN, MASTER_KILLED, MASTER_SILENT, DRIVER_KILLED, STAGING_AWAY, STORE_AWAY, ID_AGAIN)
OTHER_PLACES = (ANY_MOMENT, SCHEDULER, TRIGGERER, *OF_CLUSTERS)
