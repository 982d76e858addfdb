"""How often the triggers of a process poll."""

from __future__ import annotations

import math
import time

import pytest

from airflow_provider_fds.triggers.pacing import pause_seconds


@pytest.mark.parametrize(("poll_interval", "refusals", "longest"), [(10.0, 0, 11.25), (10.0, 3, 44.25), (60.0, 9, 331)])
def test_polls_begin_together(poll_interval, refusals, longest):
    ends = [time.monotonic() + pause_seconds(poll_interval, refusals) for _ in range(50)]

    # four times a second, whichever trigger pauses when
    assert all(math.isclose(end * 4, round(end * 4), abs_tol=0.1) for end in ends)
    assert len({round(end * 4) for end in ends}) > 1
    assert all(poll_interval * 0.9 <= end - time.monotonic() + 1 <= longest + 1 for end in ends)


def test_a_short_pause_is_not_made_longer():
    assert all(0.9 <= pause_seconds(1.0, 0) <= 1.1 for _ in range(50))
