"""The spec of a fleet: what comes back is what was written, and a changed one is refused."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.fleet_spec import FleetJob, FleetProgress, FleetSpec, fleet_name, is_fleet
from airflow_provider_fds.batch.spec import SpecChangedError

FLEET = FleetSpec(
    jobs=(
        FleetJob("orders", "file:/s/orders/jobs/a-0.job.json", num_bytes=10, timeout_seconds=1.5),
        FleetJob("lines", "file:/s/lines/jobs/b-0.job.json"),
    ),
    parallelism=8,
    progress="file:/s/.fleets/a.progress.json",
    max_bytes_in_flight=1 << 40,
    stop_on_failure=True,
    stop_after_ms=1_700_000_000_000,
)


def test_a_fleet_spec_survives_json():
    assert FleetSpec.from_json(FLEET.to_json()) == FLEET
    assert FleetSpec.from_json(FleetSpec((), 1).to_json()) == FleetSpec((), 1)


def test_the_name_binds_the_content():
    data = FLEET.to_json()
    name = fleet_name("try-1", data)
    assert name.startswith("try-1-")
    assert is_fleet(name)
    assert FleetSpec.from_file(f"s3://bucket/{name}", data) == FLEET
    with pytest.raises(SpecChangedError, match="changed after it was written"):
        FleetSpec.from_file(f"s3://bucket/{name}", data.replace(b"orders", b"others"))
    with pytest.raises(SpecChangedError, match=r"fleet\.json"):
        FleetSpec.from_file("s3://bucket/try-1.fleet.json", data)


def test_a_job_spec_is_no_fleet():
    assert not is_fleet("s3://bucket/a-00.job.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2"),
        ({"parallelism": 0}, "parallelism must be 1 or more"),
        ({"jobs": [{"stream": "a"}]}, "missing or unknown fields"),
        ({"jobs": [{"stream": "a", "spec": "b", "timeout_seconds": -1}]}, "timeout_seconds"),
        ({"jobs": [{"stream": "a", "spec": "b"}, {"stream": "a", "spec": "c"}]}, "repeated: a"),
        ({"other": 1}, "missing or unknown fields"),
    ],
)
def test_what_is_no_fleet_spec_is_refused(change, message):
    raw = {**json.loads(FLEET.to_json()), **change}
    with pytest.raises(ValueError, match=message):
        FleetSpec.from_json(json.dumps(raw))


def test_progress_survives_json():
    progress = FleetProgress({"orders": 3}, {"lines": "left"})
    assert FleetProgress.from_json(progress.to_json()) == progress
    with pytest.raises(ValueError, match="format"):
        FleetProgress.from_json(b"{}")
