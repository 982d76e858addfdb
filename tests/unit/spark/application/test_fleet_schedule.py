"""The order in which the streams of a fleet are worked on, with streams that need no Spark."""

from __future__ import annotations

import threading
import time

import pytest

from airflow_provider_fds.spark.application.fleet_schedule import FleetSchedule


class Stream:
    """A stream whose steps note when they begin and end."""

    def __init__(self, name, sizes=(1,), *, notes=None, timeout=None, body=None):
        self.name = name
        self.sizes = list(sizes)
        self.num_bytes = sum(self.sizes)
        self.timeout_seconds = timeout
        self.notes = [] if notes is None else notes
        self.body = body or (lambda _: None)
        self.position = 0
        self.given_up = []
        self.is_working = threading.Lock()

    def open(self):
        self.notes.append(("open", self.name))

    def next_bytes(self):
        return self.sizes[self.position]

    def step(self):
        assert self.is_working.acquire(blocking=False), f"two steps of {self.name} at once"
        try:
            self.notes.append(("begin", self.name, self.position))
            ended = self.body(self.position)
            self.notes.append(("end", self.name, self.position))
            self.position += 1
            return ended or ("done" if self.position == len(self.sizes) else None)
        finally:
            self.is_working.release()

    def give_up(self, error):
        self.given_up.append(error)


def began(notes):
    return [(name, position) for kind, name, *rest in notes for position in rest if kind == "begin"]


def schedule(streams, parallelism=1, **arguments):
    return FleetSchedule(streams, parallelism, poll_seconds=0.01, **arguments)


def test_the_largest_come_first_and_after_each_step_a_stream_goes_to_the_back():
    notes = []
    streams = [
        Stream("small", [1], notes=notes),
        Stream("large", [5, 5], notes=notes),
        Stream("middle", [3], notes=notes),
    ]
    assert schedule(streams).run() == {"small": "done", "large": "done", "middle": "done"}
    assert began(notes) == [("large", 0), ("middle", 0), ("small", 0), ("large", 1)]


def test_the_steps_of_a_stream_never_overlap_and_keep_their_order():
    notes = []
    streams = [Stream(f"s{n}", [1] * 20, notes=notes, body=lambda _: time.sleep(0.0005)) for n in range(10)]
    schedule(streams, 8).run()
    for stream in streams:
        assert [p for name, p in began(notes) if name == stream.name] == list(range(20))


def test_as_many_steps_as_allowed_run_at_once():
    both = threading.Barrier(3, timeout=10)
    streams = [Stream(f"s{n}", body=lambda _: both.wait() and None) for n in range(3)]
    assert set(schedule(streams, 3).run().values()) == {"done"}


def test_no_step_begins_beside_others_if_their_bytes_are_too_many():
    lock, running, most = threading.Lock(), [], []

    def work(size):
        def body(_):
            with lock:
                running.append(size)
                most.append(list(running))
            time.sleep(0.005)
            with lock:
                running.remove(size)

        return body

    sizes = [50, 8, 6, 5, 4, 3, 2, 1, 1]
    streams = [Stream(f"s{n}", [size], body=work(size)) for n, size in enumerate(sizes)]
    schedule(streams, 4, max_bytes_in_flight=10).run()
    assert all(sum(at_once) <= 10 or at_once == [50] for at_once in most)
    assert any(len(at_once) > 1 for at_once in most)


def test_a_large_step_is_not_overtaken_for_ever():
    notes = []
    small = [Stream(f"s{n}", [6] * 12, notes=notes, body=lambda _: time.sleep(0.001)) for n in range(8)]
    # its second step does not fit beside a small one
    large = Stream("large", [6, 7], notes=notes)
    schedule([*small, large], 4, max_bytes_in_flight=12).run()
    place = began(notes).index(("large", 1))
    assert place < len(began(notes)) - 30


def test_a_stream_that_fails_ends_alone():
    streams = [Stream("bad", [1, 1], body=lambda _: "failed"), Stream("good", [1, 1])]
    assert schedule(streams, 2).run() == {"bad": "failed", "good": "done"}
    assert streams[0].position == 1


@pytest.mark.parametrize("error", [OSError("no space"), SystemExit(3), KeyboardInterrupt()])
def test_a_step_that_raises_is_given_up_with_its_error(error):
    def body(_):
        raise error

    streams = [Stream("bad", body=body), *(Stream(f"s{n}") for n in range(5))]
    found = schedule(streams).run()
    assert found == {"bad": "failed", **{f"s{n}": "done" for n in range(5)}}
    assert streams[0].given_up == [error]


def test_a_stream_that_cannot_be_opened_fails_alone():
    class Unreadable(Stream):
        def open(self):
            raise ValueError("another format")

    bad = Unreadable("bad")
    assert schedule([bad, Stream("good")]).run() == {"bad": "failed", "good": "done"}
    assert [str(error) for error in bad.given_up] == ["another format"]


def test_after_a_failure_no_step_begins_if_asked():
    notes = []
    streams = [Stream("bad", [9], notes=notes, body=lambda _: "failed"), Stream("good", notes=notes)]
    assert schedule(streams, stop_on_failure=True).run() == {"bad": "failed", "good": "left"}
    assert began(notes) == [("bad", 0)]


def test_when_it_is_late_no_step_begins_and_what_runs_is_finished():
    late = threading.Event()
    streams = [Stream("first", [2, 2], body=lambda _: late.set()), Stream("other")]
    assert schedule(streams, is_late=late.is_set).run() == {"first": "left", "other": "left"}
    assert streams[0].position == 1


def test_a_step_over_its_timeout_is_given_up_and_its_thread_replaced():
    hanging = threading.Event()
    streams = [
        Stream("hangs", [9], timeout=0.05, body=lambda _: hanging.wait(30) and None),
        Stream("next"),
        Stream("last"),
    ]
    fleet = schedule(streams)
    assert fleet.run() == {"hangs": "failed", "next": "done", "last": "done"}
    assert fleet.has_hanging_threads
    (error,) = streams[0].given_up
    assert (error.reason, error.retryable) == ("BATCH_TIMED_OUT", True)
    assert "not finished after" in str(error)
    hanging.set()
    # what it does now is of no effect
    assert fleet.ended["hangs"] == "failed"


def test_the_bytes_of_a_step_that_was_given_up_are_free_again():
    hanging = threading.Event()
    streams = [
        Stream("hangs", [9], timeout=0.05, body=lambda _: hanging.wait(30) and None),
        Stream("next", [5]),
    ]
    assert schedule(streams, max_bytes_in_flight=10).run() == {"hangs": "failed", "next": "done"}
    hanging.set()


def test_the_timeout_is_of_each_step_not_of_the_stream():
    stream = Stream("slow", [1] * 5, timeout=0.5, body=lambda _: time.sleep(0.12))
    assert schedule([stream]).run() == {"slow": "done"}


def test_giving_up_that_fails_does_not_stop_the_fleet(capsys):
    class Stuck(Stream):
        def give_up(self, error):
            raise OSError("staging is gone")

    def body(_):
        raise ValueError("x")

    assert schedule([Stuck("bad", body=body), Stream("good")]).run() == {"bad": "failed", "good": "done"}
    assert "FDS stream bad: no report could be written: staging is gone" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_replaced(monkeypatch):
    streams = [Stream("first", [9]), Stream("other")]
    fleet = schedule(streams)
    step = fleet._step

    def dies_once(worker, stream):
        monkeypatch.setattr(fleet, "_step", step)
        raise SystemExit

    monkeypatch.setattr(fleet, "_step", dies_once)
    assert fleet.run() == {"first": "failed", "other": "done"}
    assert "the thread that worked on the batch ended" in str(streams[0].given_up[0])
    assert not fleet.has_hanging_threads


def test_a_fleet_that_is_stopped_leaves_the_rest():
    def stop(_):
        fleet.stop()

    streams = [Stream("first", [3, 3], body=stop), Stream("other")]
    fleet = schedule(streams)
    assert fleet.run() == {"first": "left", "other": "left"}


def test_lines_say_how_far_the_fleet_is(capsys):
    streams = [Stream("bad", [9], body=lambda _: "failed"), Stream("good", body=lambda _: time.sleep(0.05))]
    fleet = schedule(streams, line_seconds=0.02)
    fleet.run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] in (
        "FDS fleet: 0 of 2 streams done, 1 running, 1 failed, 0 waiting",
        "FDS fleet: 0 of 2 streams done, 0 running, 1 failed, 1 waiting",
    )
    assert fleet.describe() == "FDS fleet: 1 of 2 streams done, 0 running, 1 failed, 0 waiting"


def test_a_poll_that_raises_does_not_stop_the_fleet(capsys):
    polled = threading.Event()

    def poll():
        polled.set()
        raise OSError("no space")

    def body(_):
        assert polled.wait(60)

    assert schedule([Stream("good", body=body)], on_poll=poll).run() == {"good": "done"}
    assert "its progress could not be noted: no space" in capsys.readouterr().out


def test_a_fleet_without_streams_ends():
    assert schedule([], 8).run() == {}
