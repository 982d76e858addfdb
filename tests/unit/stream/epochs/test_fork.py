"""A fork: a new stream that continues where another one is, and leaves that one alone."""

from __future__ import annotations

import hashlib
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds import DeltaStream
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError, LostPositionError
from airflow_provider_fds.ledger.entries.epoch_entries import Created, Requested
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged, Quarantined, Retired
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.ledger.entries.action import BaseAction
    from tests.unit.stream.conftest import Bench

ORDERS = DeltaStream("orders", table="s3://lake/orders", starting_version=5, max_files_per_batch=3)


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Versions 0 to 6, each but the first with one file."""
    return log_builder.with_appends(6)


@pytest.fixture
def other_sink(tmp_path: Path) -> DeltaAppendSink:
    return DeltaAppendSink(str(tmp_path / "other sink"))


def refusal(call: Any, error: type[Exception] = ConfigurationError) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def contents(bench: Bench, name: str) -> dict[str, str]:
    folder = bench.staging / name
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def decide(bench: Bench, stream: DeltaStream, action: BaseAction) -> None:
    session = bench.session("person", stream=stream)
    session.connected.load()
    session.connected.execute(action)


def load_some(bench: Bench, sink: Any, stream: DeltaStream, batches: int) -> str:
    """Let a run commit this many batches; return the position."""
    session, _ = bench.run_once(sink, f"{stream.name}-{batches}", stream, max_batches=batches)
    return str(session.connected.state.position)


def rest(bench: Bench, sink: Any, stream: DeltaStream) -> list[tuple[str, int, str]]:
    """Let a run plan what is left, and return start, number of files and manifest of each batch."""
    work = bench.session("rest", stream=stream).begin(sink)
    return [(batch.start, batch.num_files, batch.digest) for batch in work.batches]


# -- the value


def test_a_fork_has_the_options_of_its_stream_and_does_no_io():
    found = ORDERS.fork("audit", max_files_per_batch=7)
    assert (found.name, found.fork_of, found.table) == ("audit", "orders", ORDERS.table)
    assert found.options.to_dict() == {"starting_version": 5, "max_files_per_batch": 7}


def test_a_fork_survives_pickling_and_its_dict():
    stream = ORDERS.fork("audit", allow_overlap=True)
    for copy in (pickle.loads(pickle.dumps(stream)), DeltaStream.from_dict(stream.to_dict())):
        assert (copy, copy.fork_of, copy.options) == (stream, "orders", stream.options)
    assert stream.rendered(lambda text: text) == stream
    assert stream.backfill(start=0, end=1).fork_of is None


def test_a_checkpoint_file_is_not_shared():
    kept = DeltaStream("orders", table="/t", checkpoint="file:/p")
    assert kept.fork("audit").checkpoint == "file:/p.audit"
    assert kept.fork("audit", checkpoint="variable").checkpoint == "variable"


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: ORDERS.fork("audit", starting_version=3), "has no option 'starting_version'"),
        (lambda: ORDERS.fork("orders"), "cannot be a fork of itself"),
        (lambda: ORDERS.fork("a b"), "name 'a b' must have"),
        (lambda: ORDERS.backfill().fork("audit"), "is a backfill"),
        (lambda: ORDERS.fork("audit", no_such_option=1), "no_such_option"),
        (lambda: DeltaStream("daily", table="/t", read="data_interval").fork("d"), "has no position to fork"),
        (lambda: DeltaStream("once", table="/t", version_as_of=3).fork("d"), "reads one version"),
        (lambda: DeltaStream("d", table="/t", fork_of=3), "fork_of must be the name of a stream"),
    ],
)
def test_what_cannot_be_forked_is_refused_when_it_is_declared(call, part):
    assert part in refusal(call)


# -- runs


def test_a_fork_reads_on_where_its_stream_is_and_leaves_that_alone(bench, table, sink, other_sink):
    live = bench.stream(max_versions_per_batch=2)
    position = load_some(bench, sink, live, 2)
    before = contents(bench, "orders")

    audit = live.fork("audit")
    at, bench.sink_version = bench.sink_version, 0
    work = bench.load_once(other_sink, "run-1", audit)

    assert work.batches[0].start == position
    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(5, 6)]
    assert contents(bench, "orders") == before
    session = bench.session(stream=audit)
    origin = session.connected.load().origin
    live_state = Ledger(open_storage(str(bench.staging)), "orders").find()
    assert (origin.stream, origin.uuid, origin.offset) == ("orders", live_state.uuid, position)
    assert "fork of" in session.status().extra
    assert session.option_notes() is None
    # the other stream goes on by itself, and so does the fork
    bench.sink_version = at
    assert [batch.first_version for batch in bench.load_once(sink, "run-2", live).batches] == [5]
    assert bench.load_once(other_sink, "run-3", audit).status == "up_to_date"


def test_a_fork_keeps_its_start_when_its_stream_continues_before_the_first_batch(bench, table, sink, other_sink):
    live = bench.stream(max_versions_per_batch=1)
    position = load_some(bench, sink, live, 2)
    bench.session(stream=live.fork("audit")).ensure_open()
    load_some(bench, sink, live, 3)
    assert rest(bench, other_sink, live.fork("audit"))[0][0] == position


def test_a_fork_within_a_version_reads_the_next_file(bench, log_builder, sink, other_sink):
    log_builder.create()
    log_builder.append(5)
    live = bench.stream(max_files_per_batch=2)
    load_some(bench, sink, live, 1)
    planned = rest(bench, sink, live)
    found = rest(bench, other_sink, live.fork("audit"))
    assert [part[1] for part in found] == [2, 1]
    assert found == planned


def test_options_that_count_files_otherwise_are_refused_within_a_version(bench, log_builder, sink, other_sink):
    log_builder.create()
    log_builder.append(5)
    live = bench.stream(max_files_per_batch=2)
    load_some(bench, sink, live, 1)
    changed = live.fork("audit", skip_change_commits=True)
    assert "while the position is inside version 1" in refusal(lambda: rest(bench, other_sink, changed), LedgerError)


def test_a_fork_within_the_initial_snapshot_reads_the_same_files_although_the_log_is_gone(
    bench, log_builder, sink, other_sink
):
    log_builder.create()
    log_builder.append(4)
    live = bench.stream(starting_version=None, max_files_per_batch=1)
    load_some(bench, sink, live, 2)
    log_builder.append(1)
    planned = rest(bench, sink, live)
    (frozen,) = (bench.staging / "orders" / "snapshots").iterdir()

    audit = live.fork("audit")
    bench.session(stream=audit).ensure_open()
    frozen.unlink()

    found = rest(bench, other_sink, audit)
    assert Offset.from_json(found[0][0]).is_initial_snapshot
    assert [part[1] for part in found] == [1, 1, 1]
    assert found == planned


def test_a_fork_passes_what_people_let_its_stream_pass(bench, table, sink, other_sink):
    live = bench.stream(max_versions_per_batch=1)
    load_some(bench, sink, live, 2)
    decide(bench, live, Acknowledged(version=4, why="known", skip=True))
    work = bench.load_once(other_sink, "run-1", live.fork("audit"))
    assert [batch.first_version for batch in work.batches] == [2, 3, 5, 6] or any(
        skipped.version == 4 for batch in work.batches for skipped in batch.skipped
    )


def test_a_fork_of_a_fork_and_its_backfill(bench, table, sink, other_sink, tmp_path):
    live = bench.stream(starting_version=2, max_versions_per_batch=2)
    load_some(bench, sink, live, 1)
    audit = live.fork("audit")
    bench.sink_version = 0
    bench.load_once(other_sink, "run-1", audit)
    third = DeltaAppendSink(str(tmp_path / "third"))
    assert bench.load_once(third, "run-2", audit.fork("copy")).status == "up_to_date"
    work = bench.load_once(other_sink, "run-3", audit.backfill())
    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(0, 2), (3, 3)]


# -- what is refused


@pytest.mark.parametrize(
    ("action", "part"),
    [
        (Quarantined(why="column dropped", version=4), "is in quarantine: column dropped"),
        (Requested(reason="reset", why="wrong", to={"start": "options"}), "epoch 2 was requested and has not begun"),
    ],
    ids=["quarantine", "requested"],
)
def test_a_stream_without_a_position_to_continue_is_refused_and_nothing_is_written(
    bench, table, sink, other_sink, action, part
):
    live = bench.stream(max_versions_per_batch=1)
    load_some(bench, sink, live, 1)
    decide(bench, live, action)
    assert part in refusal(lambda: bench.session(stream=live.fork("audit")).begin(other_sink))
    assert not (bench.staging / "audit").exists()


def test_a_stream_that_has_not_begun_is_refused(bench, table, other_sink):
    fork = bench.stream().fork("audit")
    assert "has no ledger in" in refusal(lambda: bench.session(stream=fork).begin(other_sink))


def test_a_lost_position_is_refused_before_the_fork_exists(bench, table, sink, other_sink, log_builder):
    live = bench.stream(max_versions_per_batch=1)
    load_some(bench, sink, live, 1)
    log_builder.clean_up_before(5)
    with pytest.raises(LostPositionError):
        bench.session(stream=live.fork("audit")).begin(other_sink)
    assert not (bench.staging / "audit").exists()


def test_a_missing_frozen_snapshot_is_refused(bench, log_builder, sink, other_sink):
    log_builder.create()
    log_builder.append(3)
    live = bench.stream(starting_version=None, max_files_per_batch=1)
    load_some(bench, sink, live, 1)
    (frozen,) = (bench.staging / "orders" / "snapshots").iterdir()
    frozen.unlink()
    with pytest.raises(LostPositionError, match="the frozen snapshot of version 1, is missing from staging"):
        bench.session(stream=live.fork("audit")).begin(other_sink)


@pytest.mark.parametrize("kind", ["append", "merge"])
def test_the_sink_of_the_stream_is_refused_until_that_is_retired(bench, table, tmp_path, kind):
    path = str(tmp_path / "sink")
    sink = DeltaAppendSink(path) if kind == "append" else DeltaMergeSink(path, keys=["id"])
    live = bench.stream(max_versions_per_batch=2)
    position = load_some(bench, sink, live, 1)
    audit = live.fork("audit")
    message = refusal(lambda: bench.session(stream=audit).begin(sink))
    assert "is a fork of stream 'orders', which itself loads the same versions" in message
    assert "fds retire orders" in message
    assert not (bench.staging / "audit").exists()

    decide(bench, live, Retired(why="replaced"))
    assert bench.session("run-2", stream=audit).begin(sink).batches[0].start == position


@pytest.mark.parametrize("is_replanned", [False, True])
def test_a_stream_with_planned_batches_is_not_retired(bench, table, sink, is_replanned):
    live = bench.stream(max_versions_per_batch=2)
    load_some(bench, sink, live, 1)
    rest(bench, sink, live)
    if is_replanned:
        decide(bench, live, Requested(reason="replan", why="again"))
    message = refusal(lambda: decide(bench, live, Retired(why="replaced")), LedgerError)
    assert "batch 1 (versions 3 to 4) and 1 more is planned and may be on its way into the sink" in message


def test_a_fork_of_a_fork_is_refused_in_the_sink_of_the_first_stream(bench, table, tmp_path, other_sink):
    sink = DeltaMergeSink(str(tmp_path / "merged"), keys=["id"])
    live = bench.stream(max_versions_per_batch=2)
    load_some(bench, sink, live, 1)
    bench.sink_version = 0
    bench.load_once(other_sink, "run-1", live.fork("audit"))
    copy = live.fork("audit").fork("copy")
    message = refusal(lambda: bench.session(stream=copy).begin(sink))
    assert "'copy' is a fork of stream 'orders', which itself loads the same versions" in message


def test_the_ledger_of_a_fork_has_the_start_of_its_stream_and_an_end_of_its_own(bench, table, sink, other_sink):
    live = bench.stream(ending_version=3, max_versions_per_batch=1)
    load_some(bench, sink, live, 1)
    for name, end in (("open", {}), ("longer", {"ending_version": 5})):
        fork = DeltaStream(name, table=live.table, fork_of="orders", **end)
        state = bench.session(stream=fork).ensure_open()
        assert state.range_options == {"starting_version": 0, **end}


def test_the_sink_of_the_stream_is_refused_also_if_the_fork_exists(bench, table, sink):
    live = bench.stream(max_versions_per_batch=2)
    load_some(bench, sink, live, 1)
    audit = live.fork("audit")
    bench.session(stream=audit).ensure_open()
    assert "Use another sink" in refusal(lambda: bench.session(stream=audit).begin(sink))
    allowed = live.fork("audit", allow_overlap=True)
    assert bench.session(stream=allowed).begin(sink).status == "work"


def test_a_name_that_a_stream_has_is_refused(bench, table, sink, other_sink):
    live = bench.stream(max_versions_per_batch=2)
    load_some(bench, sink, live, 1)
    bench.load_once(other_sink, "run-1", bench.stream("audit"))
    message = refusal(lambda: bench.session(stream=live.fork("audit")).begin(other_sink))
    assert "exists and is not a fork of 'orders': it began at" in message
    bench.session(stream=live.fork("second")).ensure_open()
    assert "it is a fork of 'orders'" in refusal(
        lambda: bench.session(stream=bench.stream("audit").fork("second")).begin(other_sink)
    )


def test_the_ledger_refuses_a_fork_of_another_stream_and_knows_its_own(bench, table, sink):
    from airflow_provider_fds.ledger.entries.protocol import decide as decided
    from airflow_provider_fds.stream.epochs.fork import forked

    live = bench.stream()
    load_some(bench, sink, live, 1)
    session = bench.session(stream=live.fork("audit"))
    entry = forked(session.connected)
    state = session.ensure_open()
    assert decided(state, entry) is None
    plain = Created(uuid="u", name="audit", table=state.table, deployment="test")
    assert decided(state, plain) is None
    other = bench.session(stream=bench.stream("second"))
    with pytest.raises(LedgerError, match="is not a fork of stream 'orders'"):
        decided(other.ensure_open(), entry)


def test_a_fork_of_a_stream_that_has_gone_on_is_not_told_to_retire_it_for_nothing(bench, table, tmp_path):
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    live = bench.stream(max_versions_per_batch=2)
    load_some(bench, sink, live, 1)
    audit = live.fork("audit")
    bench.session(stream=audit).ensure_open()
    at_once = refusal(lambda: bench.session(stream=audit).begin(sink))
    assert "if the fork replaces 'orders', run `fds retire orders --why …`." in at_once
    load_some(bench, sink, live, 1)
    later = refusal(lambda: bench.session("run-2", stream=audit).begin(sink))
    assert "this fork cannot replace it" in later
    assert "then fork 'orders' once more" in later
