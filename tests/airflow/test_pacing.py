"""How often the triggers of a process poll."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from airflow_provider_fds.triggers import pacing
from airflow_provider_fds.triggers.pacing import pause_seconds


@pytest.fixture
def clock(monkeypatch):
    """Set the time of the event loop."""

    def at(seconds):
        monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic=lambda: seconds))

    at(1000.4)
    pacing.note_start()
    yield at
    monkeypatch.setattr(pacing, "_last_tick", 0.0)


@pytest.mark.parametrize(
    ("poll_interval", "refusals", "shortest", "longest"),
    [(1.0, 0, 0.55, 1.55), (10.0, 0, 8.5, 11.5), (10.0, 3, 35.5, 44.5), (60.0, 9, 269.5, 330.5)],
)
def test_polls_begin_just_before_airflows_triggerer_takes_events(clock, poll_interval, refusals, shortest, longest):
    for now in (1000.45, 1007.1, 1099.9):
        clock(now)
        pauses = [pause_seconds(poll_interval, refusals) for _ in range(50)]
        assert all(shortest <= pause <= longest for pause in pauses)
        ticks = [now + pause - 1000.4 + 0.15 for pause in pauses]
        assert ticks == [pytest.approx(round(tick)) for tick in ticks]
        # not all at once
        assert len(set(pauses)) > 1 or poll_interval == 1.0


def test_a_poll_each_second_is_one_at_each_tick(clock):
    now, due = 1000.45, []
    for _ in range(100):
        clock(now)
        due.append(now + pause_seconds(1.0, 0))
        now = due[-1] + random.uniform(0.001, 0.2)
    assert due == [pytest.approx(1000.4 + n - 0.15) for n in range(1, 101)]


def test_a_pause_shorter_than_the_triggerers_is_left_as_it_is(clock):
    assert all(0.45 <= pause_seconds(0.5, 0) <= 0.55 for _ in range(50))
