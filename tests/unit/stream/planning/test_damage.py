"""A version that no manifest can be made of: what comes before it is loaded, and the next run fails before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.sinks import DeltaAppendSink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.stream.conftest import Bench

UNKNOWN_VECTOR = {"storageType": "x", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}


@pytest.mark.parametrize("limits", [{}, {"max_files_per_batch": 1}], ids=["one batch", "a batch for each file"])
@pytest.mark.parametrize(
    "damage",
    [
        {"deletionVector": UNKNOWN_VECTOR},
        {"deletionVector": {**UNKNOWN_VECTOR, "storageType": "u", "pathOrInlineDv": "no name"}},
        {"size": -1},
        {"modificationTime": 2**64},
    ],
    ids=["unknown vector", "vector without a name", "size", "time"],
)
def test_versions_before_a_damaged_one_are_loaded_and_the_next_run_fails_before_it(
    bench: Bench, log_builder: Any, tmp_path: Path, damage: dict[str, Any], limits: dict[str, int]
) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.append()
    log_builder.commit(log_builder.add("good"), log_builder.add("bad", **damage))
    log_builder.append()
    sink = DeltaAppendSink(str(tmp_path / "sink"))

    committed: Any = ()
    for run in range(5):
        session = bench.session(f"run-{run}", stream=bench.stream(**limits))
        try:
            work = session.begin(sink)
        except FdsError as error:
            assert error.version == 3  # noqa: PT017 - the last run of several
            break
        bench.report(session, work, session.job(work, sink))
        committed += session.collect(work).committed
    else:
        pytest.fail("no run failed at the damaged version")

    assert committed[0].first_version <= 1
    assert committed[-1].last_version in (2, 3)
    assert "part-00002-00000.parquet" in "".join(
        path.read_text() for path in (bench.staging / "orders" / "manifests").rglob("*.json")
    )
