"""What dies or stands still in a real Airflow, while the source grows: each row of it arrives, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stack.continuous import a_continuous_dag

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from airflow_stack import AirflowStack

    from tests.chaos.tally import Tally

pytestmark = pytest.mark.timeout(1800)


# D30
def test_a_stream_that_runs_all_the_time_while_everything_around_it_dies(
    stack: AirflowStack, lake: Path, marks: Path, seed: random.Random, tally: Tally
):
    """A fault of each kind; the long profile has them all."""
    with a_continuous_dag(stack, lake, "chaos", marks, seed.getrandbits(32), tally) as dag:
        dag.kill_at("snapshot.after")
        dag.kill_at("entry.after.planned")
        dag.kill_at("driver.commit.after")
        stalled = [dag.stop_at("entry.before.committed")]
        dag.await_retry(stalled[0])
        stalled.append(dag.orphan_at("driver.commit.before"))
        dag.await_retry(stalled[1])
        seed.shuffle(stalled)
        for process in stalled:
            process.go_on()
        dag.kill_the_scheduler()
        # its batches go to the next run, which is killed as it takes them
        lost = dag.stop_at("entry.after.planned")
        dag.fail(lost.run)
        dag.kill_at("entry.before.claimed")
        lost.go_on()
        dag.kill_the_triggerer()
