"""Runs that linger and die or stand still in a later batch, or between two: each row arrives, once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.chaos.actors import ORDERLY
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import DRIVER, a_round
from tests.chaos.test_kills_and_stalls import SMALL_BATCHES, new_lake

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.chaos.tally import Tally

#: What a run passes again for each batch. The last ones leave nothing to do: it is between two batches.
AGAIN: Final = (
    "manifest.before", "manifest.between", "manifest.after", "entry.before.planned", "entry.after.planned",
    "checkpoint.after.planned", "job.after", "submit.before", "submit.after", "entry.before.committed",
    "entry.after.committed", "checkpoint.after.committed", "fold.before",
)  # fmt: skip
#: What the short profile takes of them.
FEW: Final = ("entry.after.planned", "entry.before.committed", "fold.before")


def test_a_run_that_lingers_and_is_killed_in_a_later_batch_is_finished_by_its_retry(
    warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_round(new_lake(tmp_path, SMALL_BATCHES), warm_spark, seed.getrandbits(32), tally) as round_:
        for point in AGAIN if IS_LONG else FEW:
            round_.kill_at(point, nth=2)
        for point in DRIVER if IS_LONG else ("driver.commit.after",):
            round_.kill_at(point, nth=2)


def test_a_run_that_lingers_and_is_overtaken_in_a_later_batch_does_no_harm_when_it_continues(
    warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_round(new_lake(tmp_path, SMALL_BATCHES), warm_spark, seed.getrandbits(32), tally) as round_:
        stalled = [round_.stop_at(point, nth=2) for point in (AGAIN if IS_LONG else FEW)]
        round_.stage.run(take_over=True)
        # each finds its batch committed, and lingers beside the others until it finds one of theirs in its way
        for actor in stalled:
            actor.go_on()
        for _ in range(3):
            round_.writer.append()
            time.sleep(1)
        for actor in stalled:
            # one that found another's batch in its way has ended
            with suppress(ProcessLookupError):
                os.kill(actor.process.pid, signal.SIGTERM)
            code = actor.await_end()
            assert code in (*ORDERLY, -signal.SIGTERM, 128 + signal.SIGTERM), actor.said()[-5000:]
