"""The page of a stream: what it shows of the ledger."""

from __future__ import annotations

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged, Held, Quarantined, Resumed
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.ui import history as module
from airflow_provider_fds.ui.history import StreamHistory, describe_history
from tests.counting_storage import CountingStorage


@pytest.fixture
def loaded(bench, log_builder, tmp_path):
    """A stream that has loaded versions 0 to 2 in three batches, and its connection."""
    log_builder.create()
    log_builder.append(2)
    log_builder.append(1)
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    session, _ = bench.run_once(sink, stream=bench.stream(max_files_per_batch=2))
    return session.connected


def shown(connected):
    return describe_history(*StreamHistory(connected.staging, "orders").read())


def test_batches_are_the_committed_ones_with_their_plan_the_newest_first(loaded):
    found = shown(loaded)
    batches = found["batches"]
    assert [one["batch_id"] for one in batches] == sorted((one["batch_id"] for one in batches), reverse=True)
    newest = batches[0]
    assert (newest["epoch"], newest["last_version"], newest["dag_id"], newest["run_id"]) == (1, 2, "dag", "run-1")
    assert newest["versions"].startswith("version")
    assert sum(one["files"] for one in batches) == 3
    assert (found["epoch"], found["planned"]) == (1, [])
    assert '"reservoirVersion":3' in found["offset"]


def test_a_planned_batch_is_shown_until_it_is_committed(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(2)
    session = bench.session()
    session.begin(DeltaAppendSink(str(tmp_path / "sink")))
    (planned,) = shown(session.connected)["planned"]
    assert (planned["batch_id"], planned["files"]) == (0, 2)
    assert planned["bytes"] > 0


def test_decisions_say_who_what_and_why_the_newest_first(loaded):
    loaded.execute(Quarantined(why="version 3 deletes rows", version=3))
    loaded.execute(Acknowledged(version=3, why="seen", skip=False))
    loaded.execute(Acknowledged(version=5, why="broken load", skip=True))
    loaded.execute(Held(why="token=abc123secret"))
    loaded.execute(Resumed(why="done"))
    decisions = shown(loaded)["decisions"]
    said = [(one["action"], one["details"]) for one in decisions]
    assert said == [
        ("resumed", ""),
        ("held", ""),
        ("skipped", "version 5"),
        ("acknowledged", "version 3"),
        ("quarantined", "version 3"),
    ]
    assert (decisions[0]["why"], decisions[2]["why"]) == ("done", "broken load")
    assert "abc123secret" not in decisions[1]["why"]
    assert "task ingest of DAG dag" in decisions[0]["by"]


def test_versions_without_rows_are_ranges_with_their_reason(bench, log_builder, tmp_path):
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    stream = bench.stream(skip_versions="1-2,4")
    session, _ = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")), stream=stream)
    found = [(one["first_version"], one["last_version"]) for one in shown(session.connected)["skipped"]]
    assert found == [(4, 4), (1, 2)]


def test_an_entry_is_read_once_and_only_the_newest_are_kept(loaded, monkeypatch):
    requests = []
    history = StreamHistory(CountingStorage(loaded.staging, requests), "orders")
    _, first = history.read()
    requests.clear()
    loaded.execute(Held(why="x"))
    _, second = history.read()
    assert len(second) == len(first) + 1
    # the new entry, read by the ledger and for the page, and "no next entry"
    assert len(requests) == 3
    monkeypatch.setattr(module, "READ_ENTRIES", 2)
    assert [entry.n for entry in history.read()[1]] == [entry.n for entry in second[-2:]]


def test_a_batch_whose_plan_is_older_than_what_was_read_is_shown_without_versions(loaded, monkeypatch):
    _, entries = StreamHistory(loaded.staging, "orders").read()
    last = max(n for n, entry in enumerate(entries) if entry.action.kind == "planned")
    state = loaded.state
    (batch, *_) = describe_history(state, entries[last + 1 :])["batches"]
    assert (batch["versions"], batch["first_version"], batch["files"]) == ("not known", None, None)


def test_an_entry_that_cannot_be_read_hides_no_other(loaded):
    loaded.execute(Held(why="x"))
    loaded.ledger.save_fold()
    staging = open_storage(loaded.staging.uri)
    staging.put("orders/ledger/00000000000000000001.json", b"{")
    _, entries = StreamHistory(staging, "orders").read()
    assert 1 not in [entry.n for entry in entries]
    assert entries[-1].action.kind == "held"
