"""Ledgers that were lost or are older than the sink: the sink's own commits say where the stream continues."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata, fence_metadata
from airflow_provider_fds.batch.spec import FenceSpec, JobSpec
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_version
from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import CheckpointError, SchemaMismatchError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.stream.actions.recovery import ask_sink
from airflow_provider_fds.stream.epochs.opening import open_epoch
from tests.conftest import LogBuilder
from tests.unit.delta.conftest import CheckpointWriter

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.stream import DeltaStream
    from tests.unit.stream.conftest import Bench


class Sink:
    """A sink whose log a driver would have written: one commit for each batch of a job."""

    def __init__(self, folder: Path, value: DeltaSink | None = None) -> None:
        self.builder = LogBuilder(folder)
        self.value = value or DeltaAppendSink(str(folder))
        self.builder.create()

    def load(
        self, bench: Bench, run: str, *, commits: bool = True, batches: int = 100, stream: DeltaStream | None = None
    ) -> Any:
        session = bench.session(run, stream=stream or bench.stream(max_versions_per_batch=1))
        work = session.begin(self.value, max_batches=batches)
        spec = session.job(work, self.value)
        storage = open_storage(str(bench.staging))
        job = JobSpec.from_json(storage.get(spec.removeprefix(storage.uri + "/"))[0])
        for batch in job.batches:
            bench.sink_version = self.builder.version
            self.builder.commit(
                self.builder.add(f"part-{self.builder.version}.parquet"),
                userMetadata=commit_metadata(batch, job.attempt_id, {}, self.value.kind),
            )
        if commits:
            bench.sink_version = self.builder.version - len(job.batches)
            bench.report(session, work, spec, sink_table_id=self.builder.table_id)
            assert session.collect(work).failure is None
        return session


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "sink")


@pytest.fixture
def source(log_builder: Any) -> Any:
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    return log_builder


def recover(bench: Bench, sink: Sink, capsys: Any, *more: str) -> tuple[int, str]:
    code = main(
        [
            *("recover", "orders", "--staging", str(bench.staging), "--deployment", "test", "--sink", sink.value.uri),
            *("--table", str(bench.table), "--yes", *more),
        ]
    )
    out = capsys.readouterr()
    return code, out.out + out.err


def state_of(bench: Bench) -> Any:
    return Ledger(open_storage(str(bench.staging)), "orders").find()


def test_a_healthy_stream_needs_nothing_and_no_advice_about_a_checkpoint_that_was_not_read(bench, source, sink, capsys):
    sink.load(bench, "run-1")
    code, text = recover(bench, sink, capsys)
    assert code == 0
    assert text.splitlines()[-1] == "the ledger matches the sink; there is nothing to do"
    assert "delete" not in text


def test_a_lost_ledger_is_rebuilt_after_the_last_batch_in_the_sink(bench, source, sink, capsys):
    session = sink.load(bench, "run-1")
    before = session.connected.state
    shutil.rmtree(bench.staging)
    code, text = recover(bench, sink, capsys)

    assert code == 0
    assert "ledger:     none" in text
    assert "sink:       batch 2 of epoch 1 in version 3, up to the beginning of version 4" in text
    state = state_of(bench)
    assert (state.uuid, state.epoch, state.phase) == (before.uuid, 2, "requested")
    assert state.needs_fence
    source.append(1)
    work = bench.session("run-2").begin(sink.value)
    assert (work.status, work.epoch) == ("fence", 2)


def test_a_stream_that_merged_continues_merging(bench, source, tmp_path, capsys):
    sink = Sink(tmp_path / "sink", DeltaMergeSink(str(tmp_path / "sink"), keys=["id"]))
    sink.load(bench, "run-1")
    shutil.rmtree(bench.staging)
    code, _ = recover(bench, sink, capsys)

    assert code == 0
    assert (state_of(bench).sink.kind, state_of(bench).sink.target) == ("delta_merge", sink.builder.root.as_uri())


def test_a_ledger_that_is_older_and_has_planned_another_batch_continues_after_the_sink(
    bench, source, sink, capsys, tmp_path
):
    sink.load(bench, "run-1", batches=1)
    shutil.copytree(bench.staging, tmp_path / "copy")
    sink.load(bench, "run-2", batches=1)
    shutil.rmtree(bench.staging)
    shutil.copytree(tmp_path / "copy", bench.staging)
    # two versions in one batch, where the sink has the first of them as a batch of that number
    bench.session("run-3", stream=bench.stream(max_versions_per_batch=2)).begin(sink.value)
    code, text = recover(bench, sink, capsys)

    assert (code, "batch 1 of epoch 1" in text) == (0, True)
    state = state_of(bench)
    assert (state.epoch, state.phase, state.request.reason) == (2, "requested", "recover")


def test_a_ledger_that_is_older_than_the_sink_continues_after_it(bench, source, sink, capsys, tmp_path):
    sink.load(bench, "run-1", batches=1)
    shutil.copytree(bench.staging, tmp_path / "copy")
    sink.load(bench, "run-2")
    shutil.rmtree(bench.staging)
    shutil.copytree(tmp_path / "copy", bench.staging)
    code, text = recover(bench, sink, capsys)

    assert code == 0
    assert "epoch 2, continues at the beginning of version 4" in text
    assert state_of(bench).request.to["offset"] == ask_sink(open_storage(sink.value.uri), "orders").end


def rewind_to(bench: Bench, version: int, capsys: Any) -> str:
    words = [
        "rewind",
        "orders",
        "--staging",
        str(bench.staging),
        "--to",
        str(version),
        "--why",
        "w",
        "--sink-rows",
        "keep",
    ]
    assert main([*words, "--deployment", "test", "--replace", "--yes"]) == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("copy", ["none", "older", "entries_gone"])
def test_a_rewind_after_a_lost_history_does_not_say_that_nothing_is_read_again(
    bench, source, sink, capsys, tmp_path, copy
):
    sink.load(bench, "run-1", batches=1)
    shutil.copytree(bench.staging, tmp_path / "copy")
    sink.load(bench, "run-2")
    if copy == "entries_gone":
        entries = sorted((bench.staging / "orders" / "ledger").glob("*.json"))
        for entry in entries[:-1]:
            entry.unlink()
    else:
        shutil.rmtree(bench.staging)
        if copy == "older":
            shutil.copytree(tmp_path / "copy", bench.staging)
        assert recover(bench, sink, capsys)[0] == 0

    said = rewind_to(bench, 1, capsys)
    assert "The history lacks batches from before the ledger was lost" in said
    assert "`fds rewind orders --to start --replace --sink-rows empty --why …`" in said
    assert "--sink-rows delete" not in said
    assert "last version of the sink" not in said


def test_a_recovery_that_is_called_again_asks_for_nothing_more(bench, source, sink, capsys, tmp_path):
    sink.load(bench, "run-1", batches=1)
    shutil.copytree(bench.staging, tmp_path / "copy")
    sink.load(bench, "run-2")
    for left in (None, tmp_path / "copy"):
        shutil.rmtree(bench.staging)
        if left is not None:
            shutil.copytree(left, bench.staging)
        states = []
        for _ in range(2):
            assert recover(bench, sink, capsys)[0] == 0
            states.append(state_of(bench))
        assert states[0] == states[1]


def test_rows_that_an_attempt_wrote_without_a_report_are_left_to_the_next_run(bench, source, sink, capsys):
    sink.load(bench, "run-1", commits=False)
    code, _ = recover(bench, sink, capsys)

    assert code == 0
    assert (state_of(bench).epoch, state_of(bench).phase) == (1, "open")


def test_a_checkpoint_that_is_lost_or_broken_is_written_from_the_ledger(bench, source, sink, capsys, tmp_path):
    sink.load(bench, "run-1")
    path = tmp_path / "checkpoint.json"
    for content in (None, "{}", json.dumps({"n": 99})):
        if content is not None:
            path.write_text(content)
        code, text = recover(bench, sink, capsys, "--checkpoint", str(path))
        assert code == 0
        assert f"checkpoint {path} was written from ledger entry" in text
        assert json.loads(path.read_text())["batch_id"] == 2
    assert "as in the ledger" in recover(bench, sink, capsys, "--checkpoint", str(path))[1]


def test_without_ledger_and_sink_nothing_can_be_recovered(bench, source, sink, capsys):
    code, text = recover(bench, sink, capsys)

    assert code == 2
    assert "has no batch of this stream" in text
    assert "name no batch of the stream" in text
    code = main(["recover", "orders", "--staging", str(bench.staging), "--deployment", "test", "--yes"])
    assert (code, "name the sink and the source" in capsys.readouterr().err) == (2, True)


def test_a_checkpoint_of_another_deployment_is_repaired_by_the_command_in_its_error(
    bench, source, sink, capsys, tmp_path
):
    path = tmp_path / "checkpoint.json"
    store = FileCheckpointStore(path)
    sink.load(bench, "run-1")
    recover(bench, sink, capsys, "--checkpoint", str(path))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"deployment": "prod"}))
    with pytest.raises(CheckpointError, match="run `fds recover orders` to repair it"):
        bench.session("run-2", checkpoints=store).begin(sink.value)

    words = ["--staging", str(bench.staging), "--deployment", "prod", "--why", "moved"]
    assert main(["transfer", "orders", "--yes", *words]) == 0
    with pytest.raises(CheckpointError, match="belongs to the installation 'prod'"):
        bench.session("run-2", checkpoints=store, deployment="prod").begin(sink.value)
    assert main(["recover", "orders", *words, "--yes", "--checkpoint", str(path)]) == 0
    assert bench.session("run-2", checkpoints=store, deployment="prod").begin(sink.value).status == "up_to_date"


@pytest.mark.parametrize("newest", [2, 3])
def test_where_log_cleanup_took_the_commits_of_the_sink_the_checkpoint_says_the_position(
    bench, source, sink, capsys, tmp_path, newest
):
    uuid = sink.load(bench, "run-1").connected.state.uuid
    checkpoint = str(tmp_path / "checkpoint.json")
    recover(bench, sink, capsys, "--checkpoint", checkpoint)
    writer = CheckpointWriter(sink.builder)
    writer.more = [{"txn": {"appId": txn_app_id(uuid), "version": txn_version(1, newest)}}]
    writer.classic()
    sink.builder.commit(operation="OPTIMIZE")
    sink.builder.clean_up_before(sink.builder.version)
    shutil.rmtree(bench.staging)

    code, text = recover(bench, sink, capsys, "--checkpoint", checkpoint)
    if newest == 3:
        # the sink has a batch more than the checkpoint
        assert (code, "its newest transaction does not match a checkpoint" in text) == (2, True)
        return
    assert code == 0, text
    assert "batch 2 of epoch 1 (log cleanup removed its commit), up to the beginning of version 4" in text
    assert "no longer shows whether it was restored" in text
    state = state_of(bench)
    assert (state.uuid, state.epoch, state.phase) == (uuid, 2, "requested")
    assert bench.session("run-2").begin(sink.value).status == "fence"


def test_a_sink_that_was_restored_does_not_say_what_it_has(bench, source, sink, capsys):
    sink.load(bench, "run-1")
    sink.builder.commit(operation="RESTORE")
    shutil.rmtree(bench.staging)
    code, text = recover(bench, sink, capsys)

    assert code == 2
    assert "was restored or replaced at version 4" in text


def test_a_sink_whose_rows_an_unopened_epoch_removed_does_not_say_what_it_has(bench, source, sink, capsys):
    sink.load(bench, "run-1")
    uuid = state_of(bench).uuid
    fence = FenceSpec(stream="orders", uuid=uuid, epoch=2, removes="rows", from_version=1)
    sink.builder.commit(operation="DELETE", userMetadata=fence_metadata(fence, "t"))
    shutil.rmtree(bench.staging)

    code, said = recover(bench, sink, capsys)

    assert code == 2
    assert "at version 4, or a fence removed rows there" in said


@pytest.mark.parametrize("copy", ["none", "older", "newest"])
def test_an_epoch_whose_start_nobody_knows_is_told(bench, source, sink, capsys, tmp_path, copy):
    sink.load(bench, "run-1", batches=1)
    shutil.copytree(bench.staging, tmp_path / "copy")
    sink.load(bench, "run-2")
    if copy == "newest":
        rewind_to(bench, 1, capsys)
    fence = FenceSpec(stream="orders", uuid=state_of(bench).uuid, epoch=2)
    sink.builder.commit(operation="WRITE", userMetadata=fence_metadata(fence, "t"))
    if copy != "newest":
        shutil.rmtree(bench.staging)
    if copy == "older":
        shutil.copytree(tmp_path / "copy", bench.staging)

    code, said = recover(bench, sink, capsys)

    assert code == 0
    assert ("Epoch 2 began later and has no batch in the sink" in said) == (copy != "newest")
    if copy == "newest":
        assert state_of(bench).request.reason == "rewind", said


def test_a_stream_cannot_continue_from_a_position_within_a_lost_snapshot(bench, source, sink, capsys, monkeypatch):
    stream = bench.stream(starting_version=None, max_files_per_batch=1)
    monkeypatch.setattr(bench, "stream", lambda **_options: stream)
    sink.load(bench, "run-1", batches=1)
    shutil.rmtree(bench.staging)
    code, text = recover(bench, sink, capsys)

    assert code == 2
    assert "is within the initial snapshot" in text


def test_the_newest_of_two_streams_of_one_name_counts(source, bench, sink, capsys):
    sink.load(bench, "run-1")
    first = state_of(bench).uuid
    assert ask_sink(open_storage(sink.value.uri), "orders").namesake is None
    shutil.rmtree(bench.staging)
    second = Sink(sink.builder.root.parent / "other")
    second.load(bench, "run-1", batches=1)
    newest = second.builder.path_of(1).read_text()
    sink.builder.write_raw(sink.builder.version + 1, newest)

    account = ask_sink(open_storage(sink.value.uri), "orders")

    assert account.uuid == state_of(bench).uuid
    assert (account.batch_id, account.version, account.namesake) == (0, 4, first)
    assert ask_sink(open_storage(sink.value.uri), "orders", account.uuid).namesake is None
    shutil.rmtree(bench.staging)
    code, said = recover(bench, sink, capsys)
    assert code == 0
    assert f"Another stream of this name, uuid {first}, has written there" in said


@pytest.mark.parametrize("copy", ["none", "older"])
@pytest.mark.parametrize("is_rewound", [False, True])
def test_a_column_that_the_source_had_dropped_is_not_fed_again_after_a_recovery(
    bench, log_builder, tmp_path, capsys, copy, is_rewound
):
    def write(**columns):
        fields = [log_builder.field(name, kind) for name, kind in columns.items()]
        log_builder.commit(log_builder.metadata(fields), log_builder.add(), operation="WRITE")

    sink = Sink(tmp_path / "sink")
    columns = [log_builder.field("id", "long"), log_builder.field("x", "string")]
    sink.builder.commit(sink.builder.metadata(columns), operation="ADD COLUMNS")
    log_builder.create(columns)
    log_builder.append(1)
    sink.load(bench, "run-1", batches=1)
    shutil.copytree(bench.staging, tmp_path / "copy")
    write(id="long")
    stream = bench.stream(on_schema_change={"drop": "follow"})
    sink.load(bench, "run-2", commits=False, stream=stream)
    shutil.rmtree(bench.staging)
    if copy == "older":
        shutil.copytree(tmp_path / "copy", bench.staging)
    assert recover(bench, sink, capsys)[0] == 0
    state = state_of(bench)
    assert (state.sink_names.paths, state.sink_names.version) == (("id", "x"), 3)
    if is_rewound:
        rewind_to(bench, 1, capsys)

    write(id="long", x="string")
    session = bench.session("run-3", stream=stream)
    state = session.connected.load()
    (app_id,) = state.fence_sink.app_ids
    versions = {app_id: fence_version(state.epoch)}
    fence = Fence(status="done", versions=versions, removal=state.request.removal, sink_version=4)
    state = open_epoch(session.connected, state, fence=fence)
    assert (state.columns, state.columns_since, state.sink_names) == ({"x": ""}, 3, None)
    with pytest.raises(SchemaMismatchError, match="the column x of the batch is not what the sink"):
        sink.load(bench, "run-4", stream=stream)
