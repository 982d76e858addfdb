"""Runs that die or stand still at every point, while the source grows: each row of it arrives, once."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.chaos.lake import Lake, judge_epochs
from tests.chaos.profile import IS_LONG, PAIRS, SEED
from tests.chaos.rounds import DRIVER, ENDING, STALLING, a_round, kill_walk, pair, pairs, stall_walk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.conftest import Bucket
    from tests.chaos.tally import Tally

#: Of an initial snapshot, then the changes.
SNAPSHOT = ("max_files_per_batch=15",)
SMALL_BATCHES = ("starting_version=0", "max_versions_per_batch=20")
ONE_BATCH = ("starting_version=0", "max_versions_per_batch=1000")

#: (points behind the entry or behind the checkpoint, start with a snapshot): the short profile takes the first.
WALKS = [(False, True), (True, False), (False, False), (True, True)]


@pytest.mark.parametrize(("is_late", "from_snapshot"), WALKS if IS_LONG else WALKS[:1])
def test_a_run_that_is_killed_at_any_point_is_finished_by_its_retries(
    is_late: bool, from_snapshot: bool, warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    lake = new_lake(tmp_path, SNAPSHOT if from_snapshot else SMALL_BATCHES)
    with a_round(lake, warm_spark, seed.getrandbits(32), tally) as round_:
        kill_walk(round_, is_late=is_late, from_snapshot=from_snapshot)


@pytest.mark.parametrize(("is_late", "from_snapshot"), WALKS if IS_LONG else WALKS[:1])
def test_a_run_that_is_overtaken_at_any_point_does_no_harm_when_it_continues(
    is_late: bool, from_snapshot: bool, warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    lake = new_lake(tmp_path, SNAPSHOT if from_snapshot else SMALL_BATCHES)
    with a_round(lake, warm_spark, seed.getrandbits(32), tally) as round_:
        points = () if IS_LONG else STALLING
        stall_walk(round_, is_late=is_late, from_snapshot=from_snapshot, order=seed, points=points)


def test_the_end_of_a_stream_is_recorded_once_if_its_run_dies_or_hangs(
    warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    """What a time as the end has come to mean is written once; each later time is an end of its own."""
    lake = new_lake(tmp_path, ONE_BATCH)
    with a_round(lake, warm_spark, seed.getrandbits(32), tally) as round_:
        stage = round_.stage

        def end_here() -> None:
            stage.run(take_over=True)
            stage.lake = replace(lake, options=(*ONE_BATCH, f"ending_timestamp={datetime.now(UTC).isoformat()}"))

        before, after, behind = ENDING
        end_here()
        round_.kill_at(before)
        round_.kill_at(after)
        end_here()
        round_.kill_at(behind)
        for point in ENDING if IS_LONG else (before,):
            end_here()
            stalled = round_.stop_at(point)
            assert '"finished"' in stage.run(take_over=True).said()
            round_.go_on([stalled])
        stage.lake = lake


#: So many pairs share a lake.
CHUNK = 12


def new_lake(folder: Path, options: tuple[str, ...], *, pause_seconds: float = 3.0) -> Lake:
    return Lake(folder / "lake", str(folder / "lake" / "staging"), options=options, pause_seconds=pause_seconds)


@pytest.mark.skipif(not IS_LONG, reason="Spark's S3 file system is a large download, so only the long profile has it")
@pytest.mark.parametrize("walk", ["killed", "stalled"])
def test_runs_with_staging_on_s3_that_die_or_stand_still_at_any_point(
    walk: str, bucket: Bucket, warm_spark_on_s3: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    lake = Lake(tmp_path / "lake", f"{bucket.uri}/{walk}", bucket.options(), SNAPSHOT)
    with a_round(lake, warm_spark_on_s3, seed.getrandbits(32), tally) as round_:
        if walk == "killed":
            kill_walk(round_, is_late=False, from_snapshot=True)
        else:
            stall_walk(round_, is_late=False, from_snapshot=True, order=seed)


def chosen_pairs() -> list[list[tuple[str, str]]]:
    found = pairs()
    if PAIRS:
        found = random.Random(SEED).sample(found, PAIRS)
    return [found[i : i + CHUNK] for i in range(0, len(found), CHUNK)]


@pytest.mark.parametrize("chosen", chosen_pairs(), ids=lambda chosen: "+".join(chosen[0]))
def test_two_runs_at_any_two_points_and_a_third(
    chosen: list[tuple[str, str]], warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_round(new_lake(tmp_path, ONE_BATCH), warm_spark, seed.getrandbits(32), tally) as round_:
        round_.stage.run()
        for first, second in chosen:
            pair(round_, first, second, is_second_killed=seed.random() < 0.5)


@pytest.mark.parametrize("times", range(3 if IS_LONG else 1))
def test_each_batch_lands_once_if_a_driver_dies_or_hangs_at_any_point(
    times: int, warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    """Each run that a fault hits has a spark-submit of its own. The order of effects changes from time to time."""
    effects = ["killed", "group", "stalled", "orphaned"]
    with a_round(new_lake(tmp_path, ONE_BATCH, pause_seconds=6), warm_spark, seed.getrandbits(32), tally) as round_:
        stalled = []
        for i, point in enumerate(DRIVER if IS_LONG else DRIVER[1::2]):
            for effect in effects if IS_LONG else [effects[(i + seed.randrange(4)) % 4]]:
                if IS_LONG and point == "driver.commit.after":
                    # a batch that is in the sink is not written again: a new one has to be next
                    round_.stage.run(take_over=True)
                if effect in ("killed", "group"):
                    round_.kill_at(point, kind=effect, take_over=True)
                elif effect == "stalled":
                    stalled.append(round_.stop_at(point))
                else:
                    stalled.append(round_.orphan_at(point))
        round_.stage.run(take_over=True)
        seed.shuffle(stalled)
        round_.go_on(stalled)


@pytest.mark.parametrize("points", [DRIVER] if IS_LONG else [("driver.commit.before",)], ids=["driver"])
def test_a_driver_of_a_closed_epoch_writes_nothing(
    points: tuple[str, ...], warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    """While it stands still, a person opens a new epoch, and a run of that one continues after what has landed."""
    lake = new_lake(tmp_path, ONE_BATCH, pause_seconds=6)
    with a_round(lake, warm_spark, seed.getrandbits(32), tally, judge_epochs) as round_:
        stalled = []
        for point in points:
            stalled.append(round_.orphan_at(point))
            round_.stage.move("replan")
        round_.stage.run()
        seed.shuffle(stalled)
        round_.go_on(stalled)


@pytest.mark.skipif(not IS_LONG, reason="the short profile kills at points only")
def test_spark_that_is_killed_while_it_writes(warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally):
    with a_round(new_lake(tmp_path, ONE_BATCH, pause_seconds=6), warm_spark, seed.getrandbits(32), tally) as round_:
        for _ in range(8):
            round_.kill_any_moment(seed.uniform(0, 3))
