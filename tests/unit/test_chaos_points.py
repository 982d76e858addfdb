"""The walks of tests/chaos leave no fault point out."""

from __future__ import annotations

from airflow_provider_fds.fault_points import POINTS
from tests.chaos import rounds


def test_every_fault_point_is_reached_by_a_run():
    """Each walk asserts that a process came to each of its points."""
    walks = (*rounds.OPENING, *rounds.PLANNING, *rounds.WORKING, *rounds.ADVANCING)
    behind_checkpoints = (rounds.later(point, is_late=True) for point in walks)
    others = (*rounds.ENDING, *rounds.DRIVER, *rounds.FENCE, *rounds.REQUESTING, *rounds.RECOVERING, *rounds.INTERVALS)
    assert {*walks, *behind_checkpoints, *others, *rounds.WATCHING, *rounds.REJECTING, *rounds.SUBMITTED} == set(POINTS)
