"""Many planners and submitters of one stream at the same moment: one plan per batch, each batch once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from tests.chaos.lake import STREAM, Lake, Writer, judge
from tests.chaos.profile import IS_LONG
from tests.chaos.warm_spark import run_in

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.tally import Tally

PLANNERS = 8
SUBMITTERS = 4
ROUNDS = 50
#: Rounds with Spark, in which each of the submitters writes.
SPARK_ROUNDS = 50 if IS_LONG else 3
S3_ROUNDS = 50 if IS_LONG else 8


class Crowd:
    """Threads that do the same at the same moment, each with a session of its own."""

    def __init__(self, table: Path, staging: str, options: dict[str, str], checkpoint: Path, **source: Any) -> None:
        self._stream = DeltaStream(STREAM, table=str(table), staging=staging, options=source)
        self._staging = staging
        self._options = options
        self._checkpoint = checkpoint
        self._count = 0

    def session(self, owner: str, *, others_run: bool, task: str = "ingest") -> StreamSession:
        """Return a session of a run; ``others_run`` is what it believes of all other owners."""
        names = {"deployment": "race", "dag_id": "dag", "run_id": owner, "task_id": task}
        return StreamSession(
            self._stream,
            StreamContext(
                staging_uri=self._staging,
                staging_options=self._options,
                checkpoints=FileCheckpointStore(self._checkpoint),
                deployment="race",
                actor=Actor(**names),
                owner=Owner(kind="airflow", **names, is_three_task=task != "ingest"),
                owner_is_running=lambda _: others_run,
            ),
        )

    def at_once(self, count: int, act: Callable[[str], Any]) -> list[Any]:
        """Let ``count`` threads act; return what each returned, or the error that FDS told it."""
        barrier = Barrier(count)
        self._count += 1

        def one(i: int) -> Any:
            barrier.wait()
            try:
                return act(f"run-{self._count}-{i}")
            except FdsError as error:
                return error

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))


def race_of_own_jobs(crowd: Crowd, log_builder: Any, rounds: int) -> None:
    """Eight planners of a user job: one is handed the batches; then its commit task runs four times at once."""
    log_builder.create()
    for _ in range(rounds):
        log_builder.append(2)
        log_builder.append(1)

        def plan(run: str) -> Any:
            session = crowd.session(run, others_run=True, task="plan")
            work = session.begin(None, user_job=True)
            uuid = session.connected.state.uuid
            return [
                (run, {"uuid": uuid, "epoch": "1", "batch_id": str(b.batch_id), "digest": b.digest})
                for b in work.batches
            ]

        planned = [found for found in crowd.at_once(PLANNERS, plan) if not isinstance(found, FdsError)]
        given = [batch for found in planned for batch in found]
        assert given, "nobody was handed anything"
        assert len({run for run, _ in given}) == 1, given
        run = given[0][0]

        def commit(_: str, run: str = run, given: list[Any] = given) -> None:
            for _, batch in given:
                crowd.session(run, others_run=True, task="commit").commit_user_job(batch)

        failed = [str(found) for found in crowd.at_once(SUBMITTERS, commit) if found is not None]
        assert failed == []


def assert_each_batch_was_planned_and_committed_once(entries: list[Any], rounds: int) -> None:
    planned = [batch for entry in entries if entry.action.kind == "planned" for batch in entry.action.batches]
    committed = [entry.action.batch_id for entry in entries if entry.action.kind == "committed"]
    assert [batch.batch_id for batch in planned] == committed == list(range(len(planned)))
    assert len(planned) >= rounds
    versions = [v for batch in planned for v in range(batch.first_version, batch.last_version + 1)]
    assert Counter(versions).most_common(1)[0][1] == 1
    assert [one.end for one in planned[:-1]] == [other.start for other in planned[1:]]


def test_of_eight_planners_one_is_handed_the_batch(log_builder, tmp_path: Path):
    staging = str(tmp_path / "staging")
    crowd = Crowd(
        log_builder.root, staging, {}, tmp_path / "checkpoint.json", starting_version=0, max_versions_per_batch=1
    )
    race_of_own_jobs(crowd, log_builder, ROUNDS)
    entries = list(Lake(tmp_path, staging).ledger().entries())
    assert_each_batch_was_planned_and_committed_once(entries, ROUNDS)


def test_of_eight_planners_one_is_handed_the_batch_with_staging_on_s3(log_builder, tmp_path: Path, bucket):
    staging, options = f"{bucket.uri}/race", bucket.options()
    crowd = Crowd(
        log_builder.root, staging, options, tmp_path / "checkpoint.json", starting_version=0, max_versions_per_batch=1
    )
    race_of_own_jobs(crowd, log_builder, S3_ROUNDS)
    entries = list(Lake(tmp_path, staging, options).ledger().entries())
    assert_each_batch_was_planned_and_committed_once(entries, S3_ROUNDS)


def test_planners_and_submitters_that_consider_each_other_dead(
    warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    """Each of four submitters takes the batches from whoever has them, and writes them: real commits of Delta."""
    lake = Lake(tmp_path / "lake", str(tmp_path / "lake" / "staging"))
    lake.root.mkdir()
    crowd = Crowd(lake.source, lake.staging, {}, lake.checkpoint, starting_version=0, max_versions_per_batch=2)
    sink = DeltaAppendSink(str(lake.sink))
    spark = run_in(warm_spark)
    writer = Writer(lake, seed.getrandbits(32))

    def plan(run: str) -> None:
        crowd.session(run, others_run=True).begin(sink, take_over=False)

    def submit(run: str) -> int:
        session = crowd.session(run, others_run=False)
        for _ in range(SUBMITTERS):
            try:
                work = session.begin(sink)
                break
            except FdsError:
                # another was faster: take it from that one, while it writes
                session = crowd.session(run, others_run=False)
        if work.status != "work":
            return 0
        spark(session.job(work, sink))
        return len(session.collect(work).committed)

    committed = 0
    for _ in range(SPARK_ROUNDS):
        for _ in range(seed.randint(1, 3)):
            writer.append()
        crowd.at_once(PLANNERS, plan)
        committed += sum(found for found in crowd.at_once(SUBMITTERS, submit) if isinstance(found, int))
    while submit("last") or submit("very last"):
        pass
    verdict = judge(lake, writer.keys)
    tally.judged(verdict)
    assert verdict.batches >= SPARK_ROUNDS // 2
    assert committed > 0
    tries = [path.name.split(".")[0] for path in lake.root.glob(f"staging/{STREAM}/attempts/*/*/*.started.json")]
    assert len(tries) > verdict.batches, "no two submitters ever worked on one batch"
