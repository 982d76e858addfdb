"""What dies or stands still in a real Airflow, while the source grows: each row of it arrives, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import DRIVER, OPENING, PLANNING
from tests.stack.continuous import a_continuous_dag

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from airflow_stack import AirflowStack

    from tests.chaos.tally import Tally
    from tests.stack.continuous import ContinuousDag, Stalled

pytestmark = pytest.mark.timeout(7200 if IS_LONG else 1800)

#: What a task comes to from its plan to its commit. A version without data does not wake a sensor.
LOADING = (
    "checkpoint.after.planned", "job.after", "submit.before", "submit.after", "entry.before.committed",
    "entry.after.committed", "checkpoint.after.committed", "fold.before",
)  # fmt: skip


# D30
def test_a_continuous_stream_survives_the_death_of_every_process_around_it(
    stack: AirflowStack, lake: Path, marks: Path, seed: random.Random, tally: Tally
):
    """A fault of each kind."""
    with a_continuous_dag(stack, lake, "chaos", marks, seed.getrandbits(32), tally) as dag:
        dag.kill_at("entry.after.planned")
        # when it goes on, the driver writes late, and then the task commits late
        stalled = dag.stop_at("driver.commit.before")
        dag.await_retry(stalled)
        stalled.go_on()
        dag.kill_at("driver.commit.after")
        dag.kill_the_scheduler()
        dag.kill_the_triggerer()


@pytest.mark.skipif(not IS_LONG, reason="the short profile has a fault of each kind")
def test_a_task_that_is_killed_at_any_point_is_finished_by_airflows_retries(
    stack: AirflowStack, lake: Path, marks: Path, seed: random.Random, tally: Tally
):
    with a_continuous_dag(stack, lake, "chaos_killed", marks, seed.getrandbits(32), tally) as dag:
        for point in (*OPENING, *PLANNING, *LOADING):
            dag.kill_at(point)
        for point in DRIVER:
            dag.kill_at(point)
            dag.kill_at(point, "kill-group")
            dag.orphan_at(point)
        for point in ("entry.before.claimed", "entry.after.claimed", "checkpoint.after.claimed"):
            kill_one_that_takes_over(dag, point)
        for _ in range(3):
            dag.kill_the_scheduler()
            dag.kill_the_triggerer()


@pytest.mark.skipif(not IS_LONG, reason="the short profile has a fault of each kind")
def test_a_task_that_airflow_considers_dead_does_no_harm_when_it_continues(
    stack: AirflowStack, lake: Path, marks: Path, seed: random.Random, tally: Tally
):
    with a_continuous_dag(stack, lake, "chaos_stalled", marks, seed.getrandbits(32), tally) as dag:
        stalled: list[Stalled] = []
        # the retry opens the stream, and nobody comes to the other points of that again
        for point in (OPENING[0], *PLANNING, *LOADING, *DRIVER):
            stalled.append(dag.stop_at(point))
            dag.await_retry(stalled[-1])
            if len(stalled) == 2:
                # each holds one of the executor's four places
                go_on(stalled, seed)
                stalled = []
        go_on(stalled, seed)


def go_on(stalled: list[Stalled], order: random.Random) -> None:
    order.shuffle(stalled)
    for process in stalled:
        process.go_on()


def kill_one_that_takes_over(dag: ContinuousDag, point: str) -> None:
    """Mark a run failed that stands still behind its plan: its batches go to the next run, which dies at the point."""
    lost = dag.stop_at("entry.after.planned")
    dag.fail(lost.run)
    dag.kill_at(point)
    lost.go_on()
