"""Which versions lie in an interval, whatever times commits have and whatever is left of the log."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import LostPositionError
from airflow_provider_fds.ledger.intervals import KnownBoundary, clamped
from airflow_provider_fds.stream.position.data_interval import instant_ms, instant_text, version_at
from tests.conftest import LogBuilder

START = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2025, 1, 1, tzinfo=UTC)


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


class Boundaries:
    """Boundaries resolved one after the other, as the ledger keeps them."""

    def __init__(self, log: DeltaLog) -> None:
        self.log = log
        self.known: list[KnownBoundary] = []

    def resolve(self, instant: datetime) -> int:
        text = instant_text(instant)
        found = next((b.version for b in self.known if b.instant == text), None)
        if found is None:
            version = version_at(self.log, instant, self.known, now=NOW)
            found = clamped(self.known, text, version)
            self.known = sorted([*self.known, KnownBoundary(text, found)], key=lambda b: b.instant)
        return found


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    arrivals=st.lists(st.integers(0, 12), max_size=6),
    order=st.permutations(range(0, 14, 2)),
    late=st.integers(0, 7),
    cleaned=st.integers(0, 8),
)
def test_each_version_is_in_exactly_one_interval(times, arrivals, order, late, cleaned):
    """Commit times go back and forth, some are equal, most lie on boundaries; commits come and go between two runs."""
    with tempfile.TemporaryDirectory() as folder:
        builder = LogBuilder(Path(folder) / "table")
        builder.create(timestamp_ms=builder.time_of(0))
        for at in times:
            builder.append(1, timestamp_ms=builder.time_of(at))
        boundaries = Boundaries(DeltaLog(LocalStorage(str(builder.root))))
        lost = set()

        def work(numbers):
            for number in numbers:
                try:
                    boundaries.resolve(minute(number))
                except LostPositionError:
                    lost.add(number)

        work(order[:late])
        for at in arrivals:
            builder.append(1, timestamp_ms=builder.time_of(at))
        if cleaned:
            deltalake.DeltaTable(str(builder.root)).create_checkpoint()
            builder.clean_up_before(min(cleaned, builder.version))
        work(order[late:])

        versions = [boundary.version for boundary in boundaries.known]
        assert versions == sorted(versions)
        assert all(0 <= version <= builder.version + 1 for version in versions)
        # intervals whose two ends are known tile what lies between the first and the last end
        if versions and not lost:
            covered = [v for one, other in pairwise(versions) for v in range(one, other)]
            assert covered == list(range(versions[0], versions[-1]))
        if not cleaned:
            assert not lost


def test_instants_are_whole_milliseconds_upwards_so_that_neighbours_agree():
    assert instant_ms(datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)) == 1
    assert instant_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
    assert instant_text(datetime(2024, 1, 1, 0, 0, 0, 500, tzinfo=UTC)) == "2024-01-01T00:00:00.001Z"


def test_what_lies_between_equal_neighbours_needs_no_log(log_builder):
    known = [KnownBoundary(instant_text(minute(0)), 4), KnownBoundary(instant_text(minute(9)), 4)]
    assert version_at(DeltaLog(LocalStorage(str(log_builder.root))), minute(5), known, now=NOW) == 4


def test_a_cleaned_up_log_is_enough_if_the_previous_boundary_is_known(log_builder):
    log_builder.create()
    for _ in range(5):
        log_builder.append(1)
    log = DeltaLog(LocalStorage(str(log_builder.root)))
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.clean_up_before(3)
    with pytest.raises(LostPositionError, match="version 3"):
        version_at(log, minute(2.5), [], now=NOW)
    known = [KnownBoundary(instant_text(minute(2.2)), 3)]
    assert version_at(log, minute(2.5), known, now=NOW) == 3
    assert version_at(log, minute(3), [], now=NOW) == 3
