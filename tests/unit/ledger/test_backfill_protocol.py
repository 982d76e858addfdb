"""A backfill next to its live stream as a model: two ledgers and one sink, each access a step of its own.

As in ``test_protocol.py``, twice. A stream looks at the other one's ledger when it is bound, before it plans, and stops
if their ranges overlap. Whatever hypothesis interleaves, no version is in the sink of both streams; ranges that do not
overlap are loaded whole, and a backfill that is finished stays so.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.epoch_entries import Ended
from airflow_provider_fds.ledger.log import Ledger
from airflow_provider_fds.source.offset import Offset
from tests.unit.ledger.models import explore
from tests.unit.ledger.test_protocol import Protocol, SinkCommit
from tests.unit.ledger.test_writers import LAST_VERSION

LIVE_START = 6


def range_of(stream):
    return range(stream.first, stream.last)


class Stream(Protocol):
    """One of the two streams; they share staging and sink.

    Attributes:
        other: The other stream.
    """

    other: Stream

    def before_planning(self, ledger, execute):
        """Look at the other stream before the first batch of an epoch, then fix the end if there is one."""
        state = ledger.state
        if state.phase == "open" and not state.next_batch_id and not state.planned:
            other = yield from Ledger(self.storage, self.other.stream).find_steps()
            has_begun = other.sink is not None and other.epoch_start is not None
            if has_begun and set(range_of(self)) & set(range_of(self.other)):
                raise ConfigurationError("rows would be there twice")
        if self.is_bounded and state.phase == "open" and state.ended is None:
            yield from execute(Ended(epoch=state.epoch, instant="live_start", version=self.last - 1))

    @property
    def is_bounded(self):
        return self.last < LAST_VERSION

    def check_chain(self, entry):
        super().check_chain(entry)
        match entry.action.kind:
            case "ended":
                assert self.state.ended is None
            case "planned" | "advanced":
                assert not self.is_bounded or self.state.ended is not None, "planned without its end"
                assert Offset.from_json(self.state.position).version < self.last, "planned behind its end"

    def versions(self):
        """The versions of the source that are in the sink, of any epoch."""
        specs = [commit.facts["spec"] for commit in self.own_commits() if "spec" in commit.facts]
        return {Offset.from_json(spec.start).version for spec in specs}

    def is_finished(self):
        position = self.state.position
        return self.is_bounded and position is not None and Offset.from_json(position).version >= self.last


class Pair(RuleBasedStateMachine):
    """Both streams, and rules that let either of them make steps."""

    backfill_end = LIVE_START

    def __init__(self, make):
        super().__init__()
        self.live, self.backfill = Stream(make), Stream(make)
        self.live.first = LIVE_START
        self.backfill.stream, self.backfill.last = "orders.bf.1", self.backfill_end
        self.backfill.state = Ledger(self.live.storage, self.backfill.stream).state
        self.backfill.storage, self.backfill.sink = self.live.storage, self.live.sink
        self.live.other, self.backfill.other = self.backfill, self.live
        self.finished_at = None

    @property
    def streams(self):
        return (self.live, self.backfill)

    @initialize(is_running=st.booleans())
    def the_live_stream_is_new_or_has_run(self, is_running):
        if is_running:
            self.live.to_the_end(self.live.start_run(None))

    @rule(data=st.data(), which=st.sampled_from((0, 1)))
    def a_run_starts(self, data, which):
        stream = self.streams[which]
        if len(self.busy(stream)) < 3:
            stream.a_run_starts(data, data.draw(st.sampled_from(["at once", "before it writes"])))

    def busy(self, stream):
        return [writer for writer in stream.writers if not writer.is_done]

    is_anyone_busy = precondition(lambda self: any(self.busy(stream) for stream in self.streams))

    def chosen(self, data):
        return data.draw(st.sampled_from([stream for stream in self.streams if self.busy(stream)]))

    @is_anyone_busy
    @rule(data=st.data(), count=st.integers(1, 4))
    def a_run_makes_steps(self, data, count):
        self.chosen(data).a_writer_makes_steps(data, count)

    @is_anyone_busy
    @rule(data=st.data())
    def a_run_comes_to_where_it_is_about_to_write(self, data):
        stream = self.chosen(data)
        writer = stream.running(data)
        while not writer.is_done and not isinstance(writer.access, SinkCommit):
            stream.step(writer)

    @is_anyone_busy
    @rule(data=st.data())
    def a_run_comes_to_its_end(self, data):
        self.chosen(data).a_writer_comes_to_its_end(data)

    @is_anyone_busy
    @rule(data=st.data())
    def a_run_is_killed(self, data):
        self.chosen(data).a_writer_is_killed(data)

    @is_anyone_busy
    @rule(data=st.data(), is_taken_for_dead=st.booleans())
    def a_run_is_overtaken(self, data, is_taken_for_dead):
        self.chosen(data).a_writer_is_overtaken(data, is_taken_for_dead)

    @is_anyone_busy
    @rule(data=st.data(), fate=st.sampled_from(["request lost", "response lost", "late"]))
    def an_access_gets_no_answer(self, data, fate):
        self.chosen(data).an_access_gets_no_answer(data, fate)

    @invariant()
    def each_stream_is_right_and_no_version_is_in_the_sink_of_both(self):
        for stream in self.streams:
            stream.each_batch_lands_once_as_planned_and_nothing_of_a_closed_epoch()
        assert not self.live.versions() & self.backfill.versions(), "rows are there twice"

    @invariant()
    def a_finished_backfill_stays_finished(self):
        if self.backfill.is_finished():
            landed = len(self.backfill.own_commits())
            assert self.finished_at in (None, landed), "a finished backfill has written"
            self.finished_at = landed

    def teardown(self):
        for stream in self.streams:
            stream.teardown()
        self.each_stream_is_right_and_no_version_is_in_the_sink_of_both()
        # every third version has no data
        assert self.live.versions() | self.backfill.versions() == {v for v in range(LAST_VERSION) if v % 3 != 2}


class OverlappingPair(Pair):
    """The backfill's range reaches into the versions that the live stream loads."""

    backfill_end = LIVE_START + 3

    def teardown(self):
        # a stream that is refused stays so until a person decides
        for stream in self.streams:
            for writer in stream.writers:
                writer.steps.close()
        self.each_stream_is_right_and_no_version_is_in_the_sink_of_both()
        assert {stream.stream for stream in self.streams if stream.versions()} != {"orders", "orders.bf.1"}


def test_whatever_runs_do_a_backfill_and_its_live_stream_load_each_version_once(make):
    explore(lambda: Pair(make), examples=30, steps=30)


def test_whatever_runs_do_at_most_one_of_two_streams_that_overlap_loads_its_range(make):
    explore(lambda: OverlappingPair(make), examples=30, steps=30)


@pytest.mark.parametrize("which", [0, 1], ids=["the live stream", "the backfill"])
def test_wherever_one_of_two_streams_that_overlap_stops_the_other_loads_nothing_that_it_also_loads(make, which):
    """One run stops before each of its accesses, a run of the other stream does all it can, the first goes on."""
    loaded: set[str] = set()
    for point in itertools.count():
        pair = OverlappingPair(make)
        one, other = pair.streams[which], pair.streams[1 - which]
        stopped = one.start_run(None)
        for _ in range(point):
            if not stopped.is_done:
                one.step(stopped)
        if stopped.is_done:
            break
        other.to_the_end(other.start_run(None))
        one.to_the_end(stopped)
        pair.teardown()
        loaded |= {stream.stream for stream in pair.streams if stream.versions()}
    assert loaded == {"orders", "orders.bf.1"}


@pytest.mark.parametrize("which", [0, 1], ids=["the live stream", "the backfill"])
def test_a_backfill_that_is_finished_plans_nothing_in_later_runs(make, which):
    pair = Pair(make)
    for stream in (pair.streams[which], pair.streams[1 - which]):
        for _ in range(4):
            stream.to_the_end(stream.start_run(None))
            pair.each_stream_is_right_and_no_version_is_in_the_sink_of_both()
    assert pair.backfill.is_finished()
    before = [entry.action.kind for entry in pair.backfill.entries if entry.action.kind != "start_kept"]
    pair.backfill.to_the_end(pair.backfill.start_run(None))
    pair.each_stream_is_right_and_no_version_is_in_the_sink_of_both()
    assert [e.action.kind for e in pair.backfill.entries if e.action.kind != "start_kept"] == before
    pair.teardown()
