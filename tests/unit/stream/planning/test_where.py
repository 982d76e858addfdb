"""A stream with ``where``: what is frozen with its batches, and what wakes it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.spec import UserJobBatch
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.polling.poll import TablePoller

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench


@pytest.fixture
def table(log_builder: Any) -> Any:
    log_builder.create()
    log_builder.commit(stored(log_builder, 500))
    return log_builder


def stored(builder: Any, highest: int) -> Any:
    found = {"numRecords": 10, "minValues": {"id": 0}, "maxValues": {"id": highest}, "nullCount": {"id": 0}}
    return builder.add(f"{builder.version}.parquet", stats=json.dumps(found))


def test_a_planned_batch_keeps_the_predicate_that_it_was_planned_with(bench: Bench, table: Any) -> None:
    sink = DeltaAppendSink(str(bench.staging.parent / "sink"))
    session = bench.session(stream=bench.stream(where="ID > 100"))
    session.begin(sink)
    (planned,) = session.connected.load().planned
    assert (planned.where, planned.num_rows, planned.num_files) == ("`id` > 100", None, 1)

    session = bench.session(stream=bench.stream(where="id > 200"))
    (spec,) = session.scope.specs(session.begin(sink).batches)
    assert (spec.where, spec.num_rows) == ("`id` > 100", None)
    assert UserJobBatch.from_json(UserJobBatch(spec, "r").to_json()).batch.where == "`id` > 100"


def test_batches_of_the_same_files_with_other_predicates_have_other_digests(bench: Bench, table: Any) -> None:
    def digest_of(name: str, **options: Any) -> str:
        session = bench.session(stream=bench.stream(name=name, **options))
        session.begin(DeltaAppendSink(str(bench.staging.parent / name)))
        (planned,) = session.connected.load().planned
        return planned.digest

    digests = [digest_of("a", where="id > 100"), digest_of("b", where="id > 200"), digest_of("c")]
    assert len(set(digests)) == 3
    assert digest_of("d", where="ID  > 100") == digests[0]


def test_a_batch_without_where_has_all_rows_of_its_files(bench: Bench, table: Any) -> None:
    session = bench.session()
    (spec,) = session.scope.specs(session.begin(DeltaAppendSink(str(bench.staging.parent / "sink"))).batches)
    assert (spec.where, spec.num_rows) == (None, 10)


def test_commits_without_a_file_that_can_match_move_the_position_without_spark(bench: Bench, table: Any) -> None:
    sink = DeltaAppendSink(str(bench.staging.parent / "sink"))
    stream = bench.stream(where="id > 100")
    bench.load_once(sink, "run-1", stream)
    table.commit(stored(table, 5))
    session, work = bench.run_once(sink, "run-2", stream)
    assert work.status != "work"
    state = session.connected.load()
    assert state.position is not None
    assert json.loads(state.position)["reservoirVersion"] == 3


async def test_only_a_commit_with_a_file_that_can_match_wakes_the_stream(bench: Bench, table: Any) -> None:
    stream = bench.stream(where="id > 100")
    session, _ = bench.run_once(DeltaAppendSink(str(bench.staging.parent / "sink")), stream=stream)
    poller = TablePoller(
        stream, open_storage(str(bench.table)), Offset.from_json(str(session.connected.load().position))
    )
    now = int(time.time() * 1000)
    assert poller.check() is None
    table.commit(stored(table, 5), timestamp_ms=now)
    assert await poller.poll() is None
    table.commit(stored(table, 500), timestamp_ms=now)
    found = await poller.poll()
    assert found is not None
    assert found.reason == "data"


def test_a_predicate_that_is_not_supported_is_refused_when_the_dag_is_parsed(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a comparison, IN, BETWEEN or IS, got '\('"):
        bench.stream(where="upper(name) = 'X'")
