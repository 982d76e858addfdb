"""A stream that follows changes of the schema: what its ledger records, and which sinks do not suit it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import ConfigurationError, SchemaChangedError
from airflow_provider_fds.ledger.values import PassedSchema
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.source.options.schema_policy import schema_rules

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench

FOLLOW = {"on_schema_change": {"drop": "follow"}}


@pytest.fixture
def dropped(log_builder: Any) -> Any:
    """Version 1 appends, version 2 drops a column, version 3 appends."""
    field = log_builder.field
    log_builder.create([field("id"), field("name", "string")])
    log_builder.append()
    log_builder.commit(log_builder.metadata([field("id")]), operation="DROP COLUMNS")
    log_builder.append()
    return log_builder


def begin(bench: Bench, name: str, sink: Any, installation: str = "", **options: Any) -> Any:
    """Begin one run; if it has work, work it to its end."""
    rules = schema_rules(installation) if installation else ()
    session = bench.session(name, stream=bench.stream(**options), schema_changes=rules)
    work = session.begin(sink)
    if work.status == "work":
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    return work


def history(bench: Bench, capsys: Any) -> str:
    capsys.readouterr()
    assert main(["history", "orders", "--staging", str(bench.staging), "--deployment", "test"]) == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("way", "allowed_by"),
    [
        ({"on_schema_change": {"drop": "follow"}}, "on_schema_change={'drop': 'follow'}"),
        ({"installation": "drop=follow"}, "[fds] on_schema_change={'drop': 'follow'}"),
        ({"allowSourceColumnDrop": "2"}, "on_schema_change={'drop': 2}"),
        ({"accepted_schema_version": 2}, "accepted_schema_version=2"),
    ],
)
def test_a_change_that_passes_is_in_the_plan_with_what_allowed_it(
    bench: Bench, dropped: Any, tmp_path: Any, capsys: Any, way: dict[str, Any], allowed_by: str
) -> None:
    work = begin(bench, "run-1", DeltaAppendSink(str(tmp_path / "sink")), **way)

    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(0, 1), (2, 3)]
    first, second = work.batches
    assert first.schema_changes == ()
    assert second.schema_changes == (PassedSchema(version=2, changes=("- name: string",), allowed_by=allowed_by),)
    assert f"schema of version 2: - name: string (allowed by: {allowed_by})" in history(bench, capsys)


def test_the_status_of_planned_batches_shows_the_changes_that_they_pass(
    bench: Bench, dropped: Any, tmp_path: Any
) -> None:
    session = bench.session(stream=bench.stream(**FOLLOW))
    assert "schema changes" not in session.status().extra
    session.begin(DeltaAppendSink(str(tmp_path / "sink")))
    assert session.status().extra["schema changes"] == [
        "version 2: - name: string (allowed by: on_schema_change={'drop': 'follow'})"
    ]


def test_the_status_of_a_stream_in_quarantine_shows_the_change_and_the_rule(
    bench: Bench, dropped: Any, tmp_path: Any
) -> None:
    options = {"on_violation": "quarantine", "on_schema_change": {"drop": "fail"}}
    for name in ("run-1", "run-2"):
        begin(bench, name, DeltaAppendSink(str(tmp_path / "sink")), **options)
    shown = bench.session("looker", stream=bench.stream(**options)).status().extra["quarantined"]
    assert "version 2 changes the schema:\n  - name: string\n" in shown
    assert "on_schema_change={'drop': 'fail'}" in shown


def test_a_person_who_accepted_is_named(bench: Bench, dropped: Any, tmp_path: Any, capsys: Any) -> None:
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    begin(bench, "run-1", sink)
    with pytest.raises(SchemaChangedError):
        begin(bench, "run-2", sink)
    words = ["--version", "2", "--why", "looked at it", "--staging", str(bench.staging), "--deployment", "test"]
    assert main(["accept", "orders", "--yes", *words]) == 0
    begin(bench, "run-3", sink)
    assert "schema of version 2: - name: string (allowed by: accepted by " in history(bench, capsys)


def test_a_change_without_rows_after_it_is_in_the_advance(
    bench: Bench, log_builder: Any, tmp_path: Any, capsys: Any
) -> None:
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    log_builder.create([log_builder.field("id")])
    log_builder.append()
    begin(bench, "run-1", sink)
    log_builder.commit(log_builder.metadata([log_builder.field("id"), log_builder.field("more")]))
    assert begin(bench, "run-2", sink).status == "up_to_date"
    log_builder.append()
    (batch,) = begin(bench, "run-3", sink).batches

    assert batch.schema_changes == ()
    assert history(bench, capsys).count("schema of version 2: + more: ") == 1


def test_a_streams_own_rule_takes_precedence_over_the_installations(bench: Bench, dropped: Any, tmp_path: Any) -> None:
    sink, own = DeltaAppendSink(str(tmp_path / "sink")), {"on_schema_change": {"drop": "ask"}}
    begin(bench, "run-1", sink, installation="drop=follow", **own)
    with pytest.raises(SchemaChangedError, match=re.escape("on_schema_change={'drop': 'ask'}")):
        begin(bench, "run-2", sink, installation="drop=follow", **own)


@pytest.mark.parametrize("way", [{"on_schema_change": {"rename": "follow"}}, {"installation": "rename=follow"}])
def test_a_merge_that_adds_columns_does_not_follow_renames(
    bench: Bench, dropped: Any, tmp_path: Any, way: dict[str, Any]
) -> None:
    sink = DeltaMergeSink(str(tmp_path / "sink"), keys=["id"], merge_schema=True)
    with pytest.raises(ConfigurationError, match="updated rows would keep outdated values under the old name"):
        begin(bench, "run-1", sink, **way)


@pytest.mark.parametrize("suitable", [{"scd": 2, "merge_schema": True}, {}])
def test_a_merge_that_adds_no_columns_or_keeps_history_may_follow_renames(
    bench: Bench, dropped: Any, tmp_path: Any, suitable: dict[str, Any]
) -> None:
    sink = DeltaMergeSink(str(tmp_path / "sink"), keys=["id"], **suitable)
    assert begin(bench, "run-1", sink, installation="rename=follow").status == "work"


def test_a_rename_that_is_acknowledged_by_its_version_suits_every_sink(
    bench: Bench, dropped: Any, tmp_path: Any
) -> None:
    sink = DeltaMergeSink(str(tmp_path / "sink"), keys=["id"], merge_schema=True)
    assert begin(bench, "run-1", sink, on_schema_change={"rename": 2, "drop": "follow"}).status == "work"
