"""A checkpoint's home with something else in it: the ledger has the position, and ``fds recover`` mends the home."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.cli.main import main as fds
from airflow_provider_fds.errors import CheckpointError


class PassingStore(FileCheckpointStore):
    """A home like an XCom: a run may find there what another one has left, or nothing."""

    is_kept = False


NOTES = ["somebody's note", "[1]", '{"stream":"orders","newer":' + "[" * 5000 + "]" * 5000 + "}"]


@pytest.mark.parametrize("note", NOTES, ids=["text", "list", "nested"])
def test_where_values_come_and_go_the_ledger_decides_and_the_value_is_written_again(
    bench, log_builder, sink, tmp_path, note, caplog
):
    log_builder.create()
    log_builder.append(1)
    home = tmp_path / "checkpoint.json"
    store = PassingStore(home)
    session = bench.session(checkpoints=store)
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    log_builder.append(1)
    home.write_text(note)

    with caplog.at_level(logging.WARNING):
        again = bench.session("run-2", checkpoints=store)
        found = again.begin(sink)
    assert [batch.batch_id for batch in found.batches] == [1]
    assert "does not contain an FDS checkpoint" in caplog.text
    assert "The ledger decides" in caplog.text
    assert store.read() == again.connected.ledger.checkpoint()


@pytest.mark.parametrize("note", NOTES, ids=["text", "list", "nested"])
def test_a_file_that_is_no_checkpoint_stops_the_stream_and_the_command_in_the_message_mends_it(
    bench, two_appends, sink, tmp_path, note, capsys
):
    home = tmp_path / "checkpoint.json"
    store = FileCheckpointStore(home)
    bench.session(checkpoints=store).begin(sink)
    home.write_text(note)

    with pytest.raises(CheckpointError, match="`fds recover STREAM`, with --airflow, or with --checkpoint FILE"):
        bench.session("run-2", checkpoints=store).begin(sink)
    options = ["--staging", str(bench.staging), "--checkpoint", str(home), "--why", "a test", "--yes"]
    assert fds(["recover", "orders", *options]) == 0
    assert "does not contain an FDS checkpoint" in capsys.readouterr().out
    assert bench.session("run-2", checkpoints=store).begin(sink).status == "work"
