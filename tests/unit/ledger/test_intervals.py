"""Boundaries are resolved once and never cross: no version is in two intervals, and none in neither."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from airflow_provider_fds.errors import LedgerError, StreamBusyError
from airflow_provider_fds.ledger.entries.commit_entries import Accepted, Blocked, Committed
from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created, Opened
from airflow_provider_fds.ledger.entries.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.ledger.entries.plan_entries import Claimed, Planned
from airflow_provider_fds.ledger.entries.protocol import decide, evolve
from airflow_provider_fds.ledger.entries.refusals import StreamMovedError
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.intervals import digest_of_parts, interval_folder, interval_name
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ledger.values import SinkBinding


def instant(day: int) -> str:
    return f"2026-01-{day:02d}T00:00:00.000Z"


def resolve(day: int, version: int) -> Boundary:
    return Boundary(instant=instant(day), version=version, table_id="t")


@pytest.fixture
def after(make):
    """Return the state after commands, from a stream that was created."""

    def fold(*commands, kind="delta_replace"):
        state = StreamState(name="days")
        create = Created(uuid="u", name="days", table="file:///t", deployment="prod")
        bind = Bound(epoch=1, sink=SinkBinding(kind=kind, target="file:///s"))
        for n, command in enumerate((create, *commands[:2], bind, *commands[2:])):
            action = decide(state, command)
            if action is not None:
                state = evolve(state, make.entry(n, action))
        return state

    return fold


DAY = interval_name(instant(1), instant(2))


def opened(make, generation=1, owner=None):
    return IntervalOpened(interval=DAY, generation=generation, owner=owner or make.owner())


def planned(make, *batches, generation=1, **changes):
    fields = {"interval": DAY, "epoch": generation, "owner": make.owner(), "target": 89, "options_digest": "o"}
    return Planned(**{**fields, "meaning_digest": "m", "batches": batches, **changes})


def committed(make, batches, generation=1, **changes):
    fields = {
        "interval": DAY,
        "epoch": generation,
        "batch_id": batches[-1].batch_id,
        "owner": make.owner(),
        "attempt_id": "t",
        "outcome": "written",
        "digest": digest_of_parts(batches),
        "sink_version": 3,
        "sink_table_id": "s",
        "rows": 20,
    }
    return Committed(**{**fields, **changes})


def blocked(make, **changes):
    fields = {"epoch": 1, "interval": DAY, "batch_id": 0, "owner": make.owner(), "attempt_id": "t"}
    return Blocked(**{**fields, "reason": "rows differ", **changes})


@given(
    st.lists(
        st.tuples(st.integers(1, 28), st.integers(0, 40)), min_size=1, max_size=30, unique_by=lambda pair: pair[0]
    ),
    st.randoms(),
)
def test_boundaries_never_cross_whenever_each_was_resolved(found, random):
    # what is found depends on which commits are left, so later answers may contradict earlier ones
    random.shuffle(found)
    state = StreamState(name="days", phase="requested", uuid="u", table="file:///t", deployment="prod", epoch=1)
    resolved = {}
    for day, version in found:
        action = decide(state, resolve(day, version))
        assert isinstance(action, Boundary)
        resolved[day] = action.version
        known = (*state.boundaries,)
        state = _with_boundary(state, action)
        assert set(known) <= set(state.boundaries)  # what is known stays
        assert decide(state, resolve(day, version + 1)) is None
    versions = [b.version for b in state.boundaries]
    assert versions == sorted(versions)
    assert [b.instant for b in state.boundaries] == sorted(b.instant for b in state.boundaries)
    # neighbours share their boundary, so each version is in exactly one of the intervals between them
    covered = [v for one, other in pairwise(state.boundaries) for v in range(one.version, other.version)]
    assert covered == list(range(versions[0], versions[-1]))


def _with_boundary(state, action):
    return action.apply(state)


def test_an_interval_has_the_versions_between_its_boundaries(make, after):
    record = after(resolve(1, 3), resolve(2, 7), opened(make)).interval(DAY)
    assert (record.first_version, record.last_version, record.generation) == (3, 6, 1)


def test_an_interval_is_opened_only_when_both_ends_are_resolved(make, after):
    with pytest.raises(LedgerError, match="not resolved"):
        after(resolve(1, 3), resolve(3, 7), opened(make))


def test_a_sink_that_appends_gets_an_interval_once(make, after):
    batch = make.batch(0)
    steps = (resolve(1, 0), resolve(2, 90), opened(make), planned(make, batch), committed(make, [batch]))
    assert after(*steps, kind="delta_append").interval(DAY).is_done
    with pytest.raises(LedgerError, match="appends"):
        after(*steps, opened(make, 2), kind="delta_append")
    again = after(*steps, opened(make, 2)).interval(DAY)
    assert (again.generation, again.is_planned) == (2, False)


def test_a_generation_that_was_overtaken_commits_nothing(make, after):
    batch = make.batch(0)
    steps = (resolve(1, 0), resolve(2, 90), opened(make), planned(make, batch), opened(make, 2))
    with pytest.raises(StreamMovedError, match="generation 2"):
        after(*steps, committed(make, [batch]))


def test_an_interval_is_opened_again_only_over_an_owner_that_was_found_not_to_run(make, after):
    steps = (resolve(1, 0), resolve(2, 90), opened(make), planned(make, make.batch(0)))
    again = opened(make, 2, owner=make.owner("r2"))
    with pytest.raises(StreamBusyError, match="batch 0 belongs to task ingest of DAG orders, run r1"):
        after(*steps, again)
    assert after(*steps, replace(again, previous=make.owner())).interval(DAY).generation == 2
    done = (*steps, committed(make, [make.batch(0)]))
    assert after(*done, again).interval(DAY).generation == 2


def test_two_runs_that_open_the_same_generation_make_one_plan(make, after):
    batch, other = make.batch(0), make.batch(0, digest="other")
    steps = (resolve(1, 0), resolve(2, 90), opened(make), opened(make), planned(make, batch))
    assert after(*steps, planned(make, batch)).interval(DAY).planned == (batch,)
    with pytest.raises(StreamMovedError):
        after(*steps, planned(make, other))


def test_an_interval_is_taken_over_only_from_the_owner_that_was_found_not_to_run(make, after):
    batch, other = make.batch(0), make.owner("r2")
    steps = (resolve(1, 0), resolve(2, 90), opened(make), planned(make, batch))
    claim = Claimed(epoch=1, interval=DAY, owner=other, previous=make.owner(), why="state is failed")

    assert after(*steps, claim).interval(DAY).owner == other
    with pytest.raises(StreamBusyError, match="batch 0 belongs to task ingest of DAG orders, run r1"):
        after(*steps, replace(claim, previous=make.owner("r0")))
    with pytest.raises(StreamMovedError, match="the interval is in generation 1"):
        after(*steps, replace(claim, epoch=2))
    with pytest.raises(StreamMovedError, match="no longer a planned batch"):
        after(*steps, committed(make, [batch]), claim)
    with pytest.raises(LedgerError, match=f"rows differ.*fds accept days --interval {DAY}"):
        after(*steps, blocked(make), claim)


def test_a_blocked_interval_is_committed_once_a_person_has_accepted_it(make, after):
    batch = make.batch(0)
    steps = (resolve(1, 0), resolve(2, 90), opened(make), planned(make, batch), blocked(make))
    with pytest.raises(LedgerError, match="is blocked"):
        after(*steps, committed(make, [batch]))

    accepted = after(*steps, Accepted(interval=DAY, why="looked"))
    assert decide(accepted, blocked(make)) is None
    assert decide(accepted, blocked(make, reason="other rows differ")) is not None
    assert decide(accepted, committed(make, [batch])).was_accepted


def test_a_replacing_interval_is_committed_whole_and_an_appending_one_batch_by_batch(make, after):
    batches = [make.batch(0), make.batch(1)]
    steps = (resolve(1, 0), resolve(2, 90), opened(make), planned(make, *batches))
    assert after(*steps, committed(make, batches)).interval(DAY).is_done
    with pytest.raises(LedgerError, match="loaded something else"):
        after(*steps, committed(make, batches[:1]))
    record = after(*steps, committed(make, batches[:1]), kind="delta_append").interval(DAY)
    assert (record.is_done, record.planned) == (False, (batches[1],))


def test_intervals_are_committed_in_any_order_of_sink_versions(make, after):
    batch = make.batch(0)
    later = after(
        *(resolve(1, 0), resolve(2, 90), opened(make), planned(make, batch), committed(make, [batch], sink_version=9)),
        *(opened(make, 2), planned(make, batch, generation=2), committed(make, [batch], 2, sink_version=5)),
    )
    assert (later.sink_version, later.interval(DAY).sink_version) == (9, 5)
    assert later.interval(DAY).since == 9


def test_a_commit_that_was_already_written_is_not_repeated(make, after):
    batch = make.batch(0)
    state = after(resolve(1, 0), resolve(2, 90), opened(make), planned(make, batch), committed(make, [batch]))
    assert decide(state, committed(make, [batch])) is None


def test_a_stream_of_intervals_has_no_offset_that_could_be_opened_or_moved(make, after):
    state = after(resolve(1, 0), resolve(2, 90))
    with pytest.raises(LedgerError, match="reads data intervals"):
        decide(state, Opened(epoch=1, start="", table_id="t"))
    with pytest.raises(LedgerError, match="reads data intervals"):
        decide(state, Requested(reason="rewind", why="x"))


def test_a_stream_by_offset_does_not_become_one_of_intervals_while_an_epoch_is_requested(make):
    state = make.state(make.create(), make.open(), make.bind(), Requested(reason="replan", why="x"))
    with pytest.raises(LedgerError, match=r"reads by offset \(it is at the beginning of version 0\)"):
        decide(state, resolve(1, 0))


def test_boundaries_of_another_table_are_refused(after):
    with pytest.raises(LedgerError, match="another table"):
        after(resolve(1, 0), Boundary(instant=instant(2), version=3, table_id="other"))


def test_the_folder_of_an_interval_has_no_character_that_means_something_else():
    assert interval_folder(DAY) == "20260101T000000.000Z_20260102T000000.000Z"
