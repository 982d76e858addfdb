"""``fds admin export-checkpoint``: what it writes, says and refuses.

A query goes on in tests/interop/spark/test_take_over.py.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged, Held, Retired
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.limits import LIMITS
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.streaming_checkpoint import read_streaming_checkpoint
from airflow_provider_fds.stream.actions.export_checkpoint import _OF_DELTA, _UNKNOWN_TO_DELTA

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.stream import StreamSession
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


class HeldStream:
    """A held stream with the options that its last plan had."""

    def __init__(self, bench: Any, sink: Any, tmp_path: Path, capsys: Any) -> None:
        self.bench, self.sink, self.capsys = bench, sink, capsys
        self.checkpoint = tmp_path / "checkpoint"
        self.options: dict[str, Any] = {}

    def begin(self, batches: int = 1, **options: Any) -> StreamSession:
        self.options = options
        session, _ = self.bench.run_once(self.sink, stream=self.bench.stream(**options), max_batches=batches)
        return session

    def hold(self, session: StreamSession) -> ConnectedStream:
        session.connected.execute(Held(why="a query takes over"))
        return session.connected

    def export(self, *more: str, given: dict[str, Any] | None = None) -> tuple[int, str]:
        options = {"starting_version": 0, **self.options} if given is None else given
        words = [
            word
            for name, value in options.items()
            if value is not None
            for word in ("--option", f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}")
        ]
        staging = ("--staging", str(self.bench.staging))
        code = main(["admin", "export-checkpoint", "orders", str(self.checkpoint), *staging, *words, *more])
        out = self.capsys.readouterr()
        return code, out.out + out.err


@pytest.fixture
def held(bench: Any, sink: Any, tmp_path: Path, capsys: Any, log_builder: Any) -> HeldStream:
    log_builder.create()
    log_builder.append(3)
    log_builder.append(3)
    return HeldStream(bench, sink, tmp_path, capsys)


@pytest.mark.parametrize(
    "options",
    [{"max_files_per_batch": 2}, {"max_versions_per_batch": 1}, {"starting_version": None, "max_files_per_batch": 2}],
    ids=["commit", "version", "snapshot"],
)
def test_the_position_comes_back_when_the_checkpoint_is_read(held, options):
    connected = held.hold(held.begin(**options))
    code, text = held.export()
    assert code == 0, text
    state = connected.load()
    found = read_streaming_checkpoint(open_storage(str(held.checkpoint)), state.table_id)
    assert (found.offset.to_json(), found.batch_id, found.unfinished_batch_id) == (state.position, 1, None)
    assert state.position in text
    assert list(json.loads((held.checkpoint / "metadata").read_text())) == ["id"]
    files = sorted(str(path.relative_to(held.checkpoint)) for path in held.checkpoint.rglob("*") if path.is_file())
    assert files == ["commits/0", "commits/1", "metadata", "offsets/0", "offsets/1"]


def test_import_of_the_exported_checkpoint_gives_the_same_position(held, tmp_path):
    connected = held.hold(held.begin(max_files_per_batch=2))
    assert held.export()[0] == 0
    again = ("--staging", str(tmp_path / "other"), "--stream", "again")
    imports = ["admin", "import-checkpoint", str(held.checkpoint), str(held.bench.table)]
    assert main([*imports, *again, "--dry-run"]) == 0
    assert "the query has finished its batch 1" in held.capsys.readouterr().out
    assert not (tmp_path / "other").exists()
    assert main([*imports, *again, "--yes"]) == 0
    position = Offset.from_json(connected.load().position)
    assert f"starts at {position.describe()}, the end of batch 1" in held.capsys.readouterr().out


def test_the_options_for_the_query_are_printed(held):
    held.hold(held.begin(max_files_per_batch=7, ignore_deletes=True, exclude_regex="x.*", on_violation="quarantine"))
    code, text = held.export()
    assert code == 0, text
    assert (
        ".option('maxFilesPerTrigger', '7').option('ignoreDeletes', 'true').option('excludeRegex', 'x.*').load(" in text
    )
    assert "the stream can no longer be resumed" in text


def test_a_stream_that_may_go_on_is_refused(held):
    session = held.begin(max_files_per_batch=2)
    code, text = held.export()
    assert (code, "may continue" in text, "fds hold orders" in text) == (2, True, True), text
    held.bench.session("run-2", stream=held.bench.stream(**held.options)).begin(held.sink)
    session.connected.load()
    held.hold(session)
    code, text = held.export()
    assert (code, "planned batches, which may be in the sink already" in text) == (2, True), text
    assert not held.checkpoint.exists()


def test_other_options_than_those_of_the_last_plan_are_refused_unless_they_are_meant(held):
    held.hold(held.begin(max_versions_per_batch=1, ignore_deletes=True))
    code, text = held.export(given={})
    assert (code, "repeat the options of the stream as --option" in text) == (2, True), text
    assert held.export("--any-options", given={})[0] == 0


def test_options_that_count_files_otherwise_are_refused_within_a_version(held):
    held.hold(held.begin(max_files_per_batch=2))
    code, text = held.export("--any-options", given={"skip_change_commits": "true"})
    assert (code, "the options of the stream's last plan differ" in text) == (2, True), text
    assert "--any-options" not in text


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"ending_version": 9}, "option ending_version"),
        ({"skip_versions": "9"}, "option skip_versions"),
        ({"skip_operations": "OPTIMIZE"}, "option skip_operations"),
    ],
)
def test_what_a_query_cannot_do_is_refused(held, options, part):
    held.hold(held.begin(max_versions_per_batch=1, **options))
    code, text = held.export()
    assert (code, part in text, "that a query does not have" in text) == (2, True, True), text


def test_a_version_that_a_person_skips_later_is_refused(held):
    session = held.begin(max_versions_per_batch=1)
    session.connected.execute(Acknowledged(version=2, why="wrong rows", skip=True))
    held.hold(session)
    code, text = held.export()
    assert (code, "skipped version 2" in text) == (2, True), text


def test_a_snapshot_that_the_log_no_longer_has_is_refused(held, log_builder):
    from deltalake import DeltaTable

    held.hold(held.begin(starting_version=None, max_files_per_batch=2))
    log_builder.append(1)
    DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.clean_up_before(3)
    code, text = held.export()
    assert (code, "the log no longer has it" in text) == (2, True), text


def test_a_temporary_folder_that_cannot_be_used_is_named(held, tmp_path, monkeypatch):
    held.hold(held.begin(starting_version=None, max_files_per_batch=2))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "lost"))
    code, text = held.export()
    assert (code, f"cannot write to the temporary folder {tmp_path}/lost" in text) == (5, True), text


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_folder_that_is_not_empty_is_never_overwritten(held, place):
    held.hold(held.begin(max_files_per_batch=2))
    (held.checkpoint / "offsets").mkdir(parents=True)
    if place == "file":
        (held.checkpoint / "metadata").write_text("{}")
    code, text = held.export()
    assert (code, "exists and is not empty" in text) == (2, True), text
    assert list((held.checkpoint / "offsets").iterdir()) == []


def test_a_checkpoint_in_the_table_or_with_a_credential_is_refused(held):
    held.hold(held.begin(max_files_per_batch=2))
    held.checkpoint = held.bench.table / "checkpoint"
    code, text = held.export()
    assert (code, "overlaps" in text) == (2, True), text
    held.checkpoint = "s3://key:secret@lake/checkpoint"
    code, text = held.export()
    assert (code, "secret" in text) == (2, False), text


def test_the_query_gets_the_filter_and_the_columns_of_the_stream(held):
    held.hold(held.begin(where="ID >= 0", columns=["id"]))
    code, text = held.export()
    assert code == 0, text
    assert """.where('`id` >= 0').select('`id`').writeStream""" in text


#: Options that decide when and how rows are read, not which.
_WITHOUT_MEANING_FOR_A_QUERY = {
    *({limit.option for limit in LIMITS} - set(_OF_DELTA)),
    "starting_version",
    "starting_timestamp",
    "on_changed_start",
    "whole_commits",
    "min_batch_bytes",
    "max_batch_wait",
    "event_time_column",
    "align_with",
    "max_drift",
    "on_violation",
    "on_lost_position",
    "accepted_schema_version",
    "on_schema_change",
    "allowed_roots",
    "stage_statistics",
}


def test_every_source_option_is_given_to_a_query_or_refused_or_has_no_meaning_for_it():
    given = {*_OF_DELTA, "where", "columns"}
    decided = [given, {*_UNKNOWN_TO_DELTA, "skip_versions"}, _WITHOUT_MEANING_FOR_A_QUERY]
    assert {field.name for field in fields(SourceOptions)} == set().union(*decided)
    assert sum(map(len, decided)) == len(set().union(*decided))


@pytest.fixture
def exported(held):
    """A stream whose position was exported."""
    session = held.begin()
    held.hold(session)
    code, text = held.export()
    assert code == 0, text
    return held


def resumed(held: HeldStream, *more: str) -> tuple[int, str]:
    words = ("--staging", str(held.bench.staging), "--deployment", "test", "--why", "by mistake")
    code = main(["resume", "orders", *words, *more])
    out = held.capsys.readouterr()
    return code, out.out + out.err


def test_a_stream_whose_position_was_exported_is_not_resumed(exported):
    code, text = resumed(exported)
    assert code != 0
    assert f"its position was exported to file://{exported.checkpoint}" in text
    work = exported.bench.session("run-9").begin(exported.sink)
    assert work.status == "paused"


def test_an_exported_stream_is_resumed_if_a_person_insists(exported):
    assert resumed(exported, "--force")[0] == 0
    assert exported.bench.session("run-9").begin(exported.sink).status == "up_to_date"


@pytest.mark.parametrize("order", ["retired, then exported", "exported, then retired"])
def test_a_fork_does_not_take_the_place_of_a_stream_that_a_query_continues(held, order):
    session = held.begin()
    held.hold(session)
    if order == "retired, then exported":
        session.connected.execute(Retired(why="a query takes over"))
    assert held.export()[0] == 0
    if order == "exported, then retired":
        session.connected.load()
        session.connected.execute(Retired(why="a query takes over"))
    fork = held.bench.stream().fork("audit")
    with pytest.raises(ConfigurationError, match=r"whose position was exported to .*loads the same rows"):
        held.bench.session("run-9", stream=fork).begin(held.sink)


def test_the_export_is_recorded_before_a_query_can_start(held, monkeypatch):
    held.hold(held.begin())
    monkeypatch.setattr(LocalStorage, "put", lambda *_: (_ for _ in ()).throw(StorageError("gone")))
    assert held.export()[0] != 0
    monkeypatch.undo()
    assert resumed(held)[0] != 0
    held.checkpoint = held.checkpoint.with_name("another checkpoint")
    assert held.export()[0] == 0
