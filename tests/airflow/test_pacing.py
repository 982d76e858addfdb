"""How often the triggers of a process poll."""

from __future__ import annotations

import time

import pytest

from airflow_provider_fds.triggers.pacing import pause_seconds


@pytest.mark.parametrize(
    ("poll_interval", "refusals", "shortest", "longest"),
    [(10.0, 0, 9.0, 11.25), (10.0, 3, 36.0, 44.25), (60.0, 9, 270.0, 330.25)],
)
def test_polls_begin_together(monkeypatch, poll_interval, refusals, shortest, longest):
    now = 1000.125
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now)
        pauses = [pause_seconds(poll_interval, refusals) for _ in range(50)]

    assert all(shortest <= pause <= longest for pause in pauses)
    # four times a second, and not all at once
    assert all(((now + pause) * 4).is_integer() for pause in pauses)
    assert len(set(pauses)) > 1


def test_a_short_pause_is_not_made_longer():
    assert all(0.9 <= pause_seconds(1.0, 0) <= 1.1 for _ in range(50))
