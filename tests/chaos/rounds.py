"""Rounds: one lake each, a writer that commits all the time, faults one after another, and a verdict."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.fault_points import Fault
from tests.chaos.actors import ORDERLY, Actor, Stage, state_of, wait_until
from tests.chaos.lake import Writer, judge
from tests.chaos.tally import ANY_MOMENT, Tally

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.chaos.lake import Lake, Verdict

OPENING: Final = (
    "entry.before.created", "entry.after.created", "snapshot.before", "snapshot.after", "entry.before.opened",
    "entry.after.opened", "entry.before.bound", "entry.after.bound",
)  # fmt: skip
PLANNING: Final = (
    "ledger.read", "manifest.before", "manifest.between", "manifest.after", "entry.before.planned",
    "entry.after.planned",
)  # fmt: skip
WORKING: Final = (
    "entry.before.claimed", "entry.after.claimed", "job.after", "submit.before", "submit.after",
    "entry.before.committed", "entry.after.committed", "fold.before",
)  # fmt: skip
ADVANCING: Final = ("entry.before.advanced", "entry.after.advanced")
DRIVER: Final = (
    "driver.started", "driver.commit.before", "driver.commit.after", "driver.report.before", "driver.report.after",
)  # fmt: skip
FENCE: Final = ("fence.commit.before", "fence.commit.after", "fence.report.before")
#: A run of a stream whose end is a time passes these once there is a commit after that time.
ENDING: Final = ("entry.before.ended", "entry.after.ended", "checkpoint.after.ended")
REQUESTING: Final = ("entry.before.requested", "entry.after.requested")
RECOVERING: Final = ("recover.before", "entry.before.created", "entry.after.created", "recover.between")
#: Reached in the triggerer: tests/stack/test_asset_watcher.py.
WATCHING: Final = ("watcher.found", "watcher.stored")
#: Reached by a driver of a stream that puts rows aside: tests/interop/spark/test_rejects.py.
REJECTING: Final = ("driver.rejects.before", "driver.rejects.after")
#: A run passes these once a cluster has started its driver: tests/chaos/test_cluster.py.
SUBMITTED: Final = ("entry.before.submitted", "entry.after.submitted", "checkpoint.after.submitted")
#: A run of a data interval passes these in order.
INTERVALS: Final = tuple(
    f"{place}.{kind}"
    for kind in ("boundary", "interval_opened", "planned", "committed")
    for place in ("entry.before", "entry.after", "checkpoint.after")
)

#: Where stalling makes a difference: after its step, a run can only be late with the checkpoint, which two of them
#: show.
STALLING: Final = (
    "entry.before.created", "snapshot.before", "entry.before.opened", "entry.before.bound", "ledger.read",
    "manifest.between", "entry.before.planned", "entry.after.planned", "entry.before.claimed", "submit.before",
    "entry.before.committed", "entry.after.committed",
)  # fmt: skip

#: A run passes these in order, each time again, if nothing is planned when it starts.
FRESH: Final = (*PLANNING, "checkpoint.after.planned")
#: … and these if another run's batch is planned.
TAKEN: Final = ("entry.before.claimed", "entry.after.claimed", "checkpoint.after.claimed")
LOADING: Final = ("job.after", "submit.before", "submit.after", "entry.before.committed")
COMMITTED: Final = ("entry.after.committed", "checkpoint.after.committed", "fold.before")

#: This many undisturbed runs reach the newest version, whatever the earlier ones left.
_LAST_RUNS: Final = 4


def later(point: str, *, is_late: bool) -> str:
    """Return the point after the checkpoint instead of the one after the entry."""
    return point.replace("entry.after.", "checkpoint.after.") if is_late else point


def pairs() -> list[tuple[str, str]]:
    """Return all pairs of points that two runs can reach: the first stops there, the second reaches its own.

    With one batch per plan: while the first is stopped between its plan and its commit, the second finds a planned
    batch and takes it over; otherwise it plans its own.
    """
    nothing_planned = (*FRESH[: FRESH.index("entry.before.planned") + 1], *COMMITTED)
    planned = ("entry.after.planned", "checkpoint.after.planned", *TAKEN, *LOADING)
    found = [(p, q) for p in nothing_planned for q in (*FRESH, *LOADING, *COMMITTED)]
    return found + [(p, q) for p in planned for q in ("ledger.read", *TAKEN, *LOADING, *COMMITTED)]


class Round:
    """Actors, one after another, on one lake. What they leave is judged at the end."""

    def __init__(self, stage: Stage, writer: Writer, tally: Tally) -> None:
        self.stage = stage
        self.writer = writer
        self.tally = tally

    def kill_at(self, point: str, *, kind: str = "killed", take_over: bool = False, nth: int = 1) -> None:
        """Let a run reach the point so many times and die there. The next one is its retry."""
        effect = "kill-group" if kind == "group" else "kill"
        actor = self._hit(Fault(effect, point, nth), kind, take_over=take_over)
        if point in (*DRIVER, *FENCE):
            if nth > 1:
                actor.end_lingering()
            actor.await_end()
        else:
            assert actor.process.wait() < 0

    def kill_command_at(self, point: str, *arguments: str) -> None:
        """Let a person's command reach the point and die there."""
        actor = self.stage.command(*arguments, fault=Fault("kill", point))
        assert actor.await_hit(), f"no command came to {point}: {actor.said()[-5000:]}"
        assert actor.process.wait() < 0
        self.tally.hit("killed", point)

    def stop_at(self, point: str, *, kind: str = "stalled", nth: int = 1) -> Actor:
        """Let a run reach the point so many times and stop there."""
        return self._hit(Fault("stop", point, nth), kind, take_over=True)

    def orphan_at(self, point: str) -> Actor:
        """Stop the driver at the point, and kill the run that waits for it."""
        actor = self._hit(Fault("stop", point), "orphaned", take_over=True)
        actor.kill()
        return actor

    def kill_any_moment(self, seconds: float) -> None:
        """Kill spark-submit with all its processes this long after the driver has started a batch."""
        actor = self.stage.start(Fault("note", "driver.started"), take_over=True)
        self.writer.append()
        assert actor.await_hit(), actor.said()[-5000:]
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(actor.hit or 0), signal.SIGKILL)
            self.tally.hit("group", ANY_MOMENT)
        actor.await_end()

    def go_on(self, actors: list[Actor]) -> None:
        """Continue the stopped actors, one after another, and wait until each has ended."""
        for actor in actors:
            assert actor.hit is not None
            assert state_of(actor.hit) == "T", f"{actor.fault} does not stand still any more"
            actor.go_on()
            hit = actor.hit
            if actor.process.poll() is None:
                code = actor.await_end()
                assert code in ORDERLY, f"{actor.fault} ended with {code}: {actor.said()[-5000:]}"
            wait_until(lambda hit=hit: state_of(hit) is None, f"process {hit}, continued after {actor.fault}, to end")

    def prepare(self, point: str) -> None:
        """Make sure that a run can reach the point."""
        if not point.endswith("advanced"):
            self.writer.append()

    def _hit(self, fault: Fault, kind: str, *, take_over: bool) -> Actor:
        self.prepare(fault.point)
        actor = self.stage.start(fault, take_over=take_over)
        assert actor.await_hit(), f"no run came to {fault}: {actor.said()[-5000:]}"
        self.tally.hit(kind, fault.point)
        return actor


@contextmanager
def a_round(
    lake: Lake, port: int | None, seed: int, tally: Tally, judge: Callable[[Lake, int], Verdict] = judge
) -> Iterator[Round]:
    """Yield a round on a new lake; afterwards bring the stream up to date and judge it."""
    lake.root.mkdir(parents=True)
    stage = Stage(lake, port)
    try:
        with Writer(lake, seed) as writer:
            yield Round(stage, writer, tally)
        for _ in range(_LAST_RUNS):
            ended = stage.run()
            if '"batch_id"' not in ended.said():
                break
        tally.judged(judge(lake, writer.keys))
    finally:
        stage.end()


def kill_walk(round_: Round, *, is_late: bool, from_snapshot: bool) -> None:
    """Kill a run at every point; each run is the retry of the previous one."""
    for point in (*opening(from_snapshot=from_snapshot), *PLANNING, *WORKING):
        round_.kill_at(later(point, is_late=is_late))
    with _only_versions_without_data(round_):
        round_.kill_at(ADVANCING[0])
        round_.kill_at(later(ADVANCING[1], is_late=is_late))


def stall_walk(
    round_: Round, *, is_late: bool, from_snapshot: bool, order: random.Random, points: tuple[str, ...] = ()
) -> None:
    """Stop a run at all or some points, each overtaken by the next; a last one finishes, then all continue."""
    points = points or (*opening(from_snapshot=from_snapshot), *PLANNING, *WORKING)
    stalled = [round_.stop_at(later(point, is_late=is_late)) for point in points]
    round_.stage.run(take_over=True)
    order.shuffle(stalled)
    round_.go_on(stalled)
    with _only_versions_without_data(round_):
        stalled = [round_.stop_at(ADVANCING[0]), round_.stop_at(later(ADVANCING[1], is_late=is_late))]
        round_.stage.run(take_over=True)
    order.shuffle(stalled)
    round_.go_on(stalled)


def pair(round_: Round, first: str, second: str, *, is_second_killed: bool) -> None:
    """Stop one run at ``first``; let a second reach ``second`` and die or stop; a third finishes; all continue."""
    if first in TAKEN:
        round_.kill_at("checkpoint.after.planned", take_over=True)
    stalled = [round_.stop_at(first, kind="pair, first")]
    if is_second_killed:
        round_.kill_at(second, kind="pair, second", take_over=True)
    else:
        stalled.append(round_.stop_at(second, kind="pair, second"))
    round_.stage.run(take_over=True)
    round_.go_on(stalled)


def opening(*, from_snapshot: bool) -> tuple[str, ...]:
    """Return the points of a stream's first steps."""
    return tuple(point for point in OPENING if from_snapshot or not point.startswith("snapshot."))


@contextmanager
def _only_versions_without_data(round_: Round) -> Iterator[None]:
    """Bring the stream up to date and commit something without data for it; nothing else is committed meanwhile."""
    with round_.writer.quiet():
        for _ in range(_LAST_RUNS):
            if '"batch_id"' not in round_.stage.run(take_over=True).said():
                break
        round_.writer.compact()
        yield
