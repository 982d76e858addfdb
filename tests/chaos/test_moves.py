"""What a person does to a stream, killed and stalled: a request, the fence that closes the old epoch, `fds recover`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.actors import well_ended
from tests.chaos.lake import Lake, judge_epochs
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import FENCE, RECOVERING, REQUESTING, a_round

if TYPE_CHECKING:
    import random

    from tests.chaos.tally import Tally

ONE_BATCH = ("starting_version=0", "max_versions_per_batch=1000")


def new_lake(folder: Path) -> Lake:
    return Lake(folder / "lake", str(folder / "lake" / "staging"), options=ONE_BATCH, pause_seconds=6)


def test_a_fence_that_dies_or_hangs_closes_the_old_epoch_once(
    warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    """Each attempt at the fence has a spark-submit of its own; the one that stands still goes on when all is over."""
    with a_round(new_lake(tmp_path), warm_spark, seed.getrandbits(32), tally, judge_epochs) as round_:
        round_.stage.run()
        for number in range(2 if IS_LONG else 1):
            round_.kill_at("entry.after.planned", take_over=True)
            for point in REQUESTING:
                round_.kill_command_at(point, "replan", "--request-id", f"id {number}")
            round_.stage.move("replan", "--request-id", f"id {number}")
            stalled = [round_.stop_at(FENCE[0])]
            if IS_LONG:
                round_.kill_at(FENCE[0], take_over=True)
                stalled.append(round_.orphan_at(FENCE[1]))
                stalled.append(round_.stop_at(FENCE[2]))
            else:
                round_.kill_at(FENCE[1], take_over=True)
            round_.kill_at(FENCE[2], kind="group", take_over=True)
            # fences, begins the epoch, and loads
            round_.stage.run(take_over=True)
            seed.shuffle(stalled)
            round_.go_on(stalled)
        opened = [entry.action.epoch for entry in round_.stage.lake.ledger().entries() if entry.action.kind == "opened"]
        assert opened == [*range(1, len(opened) + 1)]
        assert len(opened) == (3 if IS_LONG else 2)


@pytest.mark.parametrize("ledger", ["lost", "older than the sink"])
def test_a_recovery_that_is_killed_at_any_point_is_finished_by_the_next(
    ledger: str, warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_round(new_lake(tmp_path), warm_spark, seed.getrandbits(32), tally, judge_epochs) as round_:
        round_.stage.run()
        lake = round_.stage.lake
        staging, backup = Path(lake.staging), tmp_path / "backup"
        kept = 0
        if ledger == "lost":
            shutil.rmtree(staging / lake.stream)
        else:
            shutil.copytree(staging, backup)
            kept = len(list(lake.ledger().entries()))
            round_.writer.append()
            round_.stage.run()
            shutil.rmtree(staging)
            backup.rename(staging)
        places = {"--sink": lake.sink, "--table": lake.source, "--checkpoint": lake.checkpoint}
        recover = ("recover", *(f"{name}={place}" for name, place in places.items()))
        written = "created" if ledger == "lost" else "requested"
        for point in RECOVERING:
            round_.kill_command_at(point.replace("created", written), *recover)
        assert not lake.checkpoint.exists()
        well_ended(round_.stage.command(*recover))
        assert lake.checkpoint.exists()
        assert [entry.action.kind for entry in lake.ledger().entries()][kept:] == [written]
        round_.writer.append()
        round_.stage.run()
