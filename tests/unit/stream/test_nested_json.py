"""JSON from outside that is nested too deeply is what any other damaged value is, to every reader of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.sink.loaded_streams import pieces
from airflow_provider_fds.batch.spec import UserJobBatch
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import CheckpointError, ConfigurationError, LedgerError
from airflow_provider_fds.fleet import discovery
from airflow_provider_fds.fleet.positions import KnownPositions
from airflow_provider_fds.ledger.layout import status_key
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.ledger.staging import housekeeping
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.spark.fence import registration
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.stream.monitoring.status_row import parse_row, read_status_file
from airflow_provider_fds.triggers import delta_table_change

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.sinks import DeltaAppendSink
    from tests.unit.stream.conftest import Bench

NESTED = "[" * 100_000 + "]" * 100_000
IN_OBJECT = '{"stream":"orders","newer":' + NESTED + "}"


def checkpoint(**changes: Any) -> str:
    fields = {"stream": "orders", "uuid": "u", "deployment": "d", "n": 1, "digest": "x", "epoch": 1, "batch_id": None}
    return json.dumps({**fields, "offset": None, **changes})


@pytest.mark.parametrize(
    ("text", "why"),
    [(NESTED, "got `array`"), (IN_OBJECT, "nested too deeply"), (checkpoint(offset=NESTED), "nested too deeply")],
    ids=["value", "field", "offset"],
)
def test_a_checkpoint_is_named_as_none(text, why):
    with pytest.raises(CheckpointError, match=rf"the file does not contain an FDS checkpoint \(.*{why}"):
        Checkpoint.from_json(text, home="the file")


def test_a_checkpoint_whose_offset_is_not_one_is_named_as_none():
    with pytest.raises(CheckpointError, match=r"does not contain an FDS checkpoint .*sourceVersion None"):
        Checkpoint.from_json(checkpoint(offset='{"reservoirVersion": 3}'), home="the file")


def test_an_offset_is_refused():
    with pytest.raises(ConfigurationError, match="is not an offset: it is nested too deeply"):
        Offset.from_json(NESTED)


def test_a_batch_of_a_user_job_is_refused():
    with pytest.raises(ValueError, match=r"must be plan\.output"):
        UserJobBatch.from_json(NESTED)


@pytest.fixture
def staging(tmp_path: Path) -> Any:
    return open_storage(str(tmp_path / "staging"))


def test_hints_in_staging_are_ignored(staging):
    for key in ("note.json", status_key("orders")):
        staging.put(key, IN_OBJECT.encode())
    positions = KnownPositions(staging, "fleet", "d")
    staging.put(positions.key, IN_OBJECT.encode())

    assert housekeeping._noted(staging, "note.json").next_entry == 0
    assert read_status_file(staging, "orders") is None
    assert parse_row(IN_OBJECT.encode()) is None
    positions.load()


def test_the_record_of_a_fleets_tables_is_damaged(staging):
    staging.put("tables.json", IN_OBJECT.encode())
    with pytest.raises(LedgerError, match=r"is damaged .*nested too deeply"):
        discovery._read(staging, "tables.json")


def test_a_stored_stream_of_a_trigger_is_none():
    assert delta_table_change._decoded(NESTED) is None


def test_commits_of_other_writers_name_no_stream_and_no_offset(tmp_path):
    log = tmp_path / "_delta_log"
    log.mkdir()
    told = json.dumps({"commitInfo": {"userMetadata": NESTED}})
    (log / f"{3:020d}.json").write_text(told)

    assert registration._uuid_in(SinkLog(None, f"file:{tmp_path}"), 3) is None
    assert pieces(NESTED, NESTED, 3) == ()


def test_a_commit_of_the_sink_that_cannot_be_read_refuses_the_report(bench: Bench, two_appends, sink: DeltaAppendSink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    storage = open_storage(sink.uri)
    key = "_delta_log/00000000000000000001.json"
    lines = storage.get(key)[0].replace(b'{"commitInfo":{', b'{"commitInfo":{"newer":' + NESTED.encode() + b",")
    storage.put(key, lines)

    assert "version 1 of the sink cannot be read (it is nested too deeply)" in str(session.collect(work).failure)
