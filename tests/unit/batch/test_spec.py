"""The values that cross the border to the driver: they come back as they went, or not at all."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import airflow_provider_fds.batch as batch_package
from airflow_provider_fds.batch.report import (
    AttemptReport,
    FenceEvidence,
    FenceReport,
    LandedBatch,
    RemovedRows,
    decode,
    report_name,
    started_name,
)
from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata, fence_metadata, read_commit_metadata
from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec, SpecChangedError, job_name
from airflow_provider_fds.batch.table_writes import TableWrite, TableWrites
from airflow_provider_fds.batch.transactions import fence_version, txn_version

GOLDEN = Path(__file__).parents[2] / "golden" / "batch"

BATCH = BatchSpec(
    stream="orders_to_bronze",
    uuid="0b1c6c0e-6d4e-4d57-9a38-2f1c1f1f8a01",
    epoch=2,
    batch_id=3,
    start='{"sourceVersion":1,"reservoirId":"t","reservoirVersion":7,"index":-1,"isStartingVersion":false}',
    end='{"sourceVersion":1,"reservoirId":"t","reservoirVersion":9,"index":4,"isStartingVersion":false}',
    after='{"sourceVersion":1,"reservoirId":"t","reservoirVersion":6,"index":-1,"isStartingVersion":false}',
    first_version=7,
    last_version=9,
    manifest="s3a://staging/orders_to_bronze/manifests/2/3-0123456789abcdef0123456789abcdef",
    manifest_digest="0123456789abcdef0123456789abcdef",
    num_files=5,
    num_bytes=12345,
    num_rows=None,
    prev_txn_version=8589934594,
)
JOB = JobSpec(
    batches=(BATCH, replace(BATCH, batch_id=4, num_rows=17, prev_txn_version=8589934596)),
    sink={"kind": "delta_append", "uri": "s3://lake/bronze/é"},
    sink_table_id="9a2b1b53-6c3e-4d0c-8f8e-1f64c5b2f3ab",
    sink_version=41,
    reports="s3a://staging/orders_to_bronze/attempts",
    attempt_id="t1",
    stop_after_ms=1767268800123,
)
FENCE = FenceSpec(stream="orders_to_bronze", uuid=BATCH.uuid, epoch=3)
FENCE_REPORT = FenceReport(
    uuid=BATCH.uuid,
    epoch=3,
    attempt_id="t2",
    outcome="fenced",
    sink_version=43,
    sink_table_id="9a2b1b53-6c3e-4d0c-8f8e-1f64c5b2f3ab",
    landed=(LandedBatch(2, 3, BATCH.end, BATCH.manifest_digest, 42),),
    removed_rows=17,
    evidence=FenceEvidence(
        newest=(2 << 32) + 4,
        is_cut=True,
        broken_at=41,
        removed=(RemovedRows(2, 40, "rows", 9), RemovedRows(2, 41)),
        restored_to=12,
    ),
)
REPORT = AttemptReport(
    uuid=BATCH.uuid,
    epoch=2,
    batch_id=3,
    manifest_digest=BATCH.manifest_digest,
    attempt_id="t1",
    outcome="written",
    sink_version=42,
    sink_table_id="9a2b1b53-6c3e-4d0c-8f8e-1f64c5b2f3ab",
    rows_planned=17,
    rows_written=17,
    files_written=1,
    bytes_written=999,
    seconds={"check": 0.5, "load": 0.25, "write": 1.5, "verify": 0.125, "total": 2.5},
    settings={"spark.sql.files.ignoreCorruptFiles": "false"},
    rows_read=17,
)


def test_a_job_spec_survives_a_round_trip():
    assert JobSpec.from_json(JOB.to_json()) == JOB


@pytest.mark.parametrize("since", [0, 7])
def test_the_record_of_columns_survives_a_round_trip(since):
    job = replace(JOB, batches=(replace(BATCH, columns={"x": "c1"}, fed={"x": "c2"}, fed_since=since),))
    assert JobSpec.from_json(job.to_json()) == job


def test_a_fence_job_survives_a_round_trip():
    job = replace(JOB, batches=(), fence=FENCE)

    assert JobSpec.from_json(job.to_json()) == job


def test_a_fence_records_what_it_removes_and_the_version_it_checked():
    plain, removing = fence_metadata(FENCE, "t2"), replace(FENCE, removes="rows", from_version=4)

    assert "removes" not in read_commit_metadata(plain)
    wanted = {"what": "rows", "from_version": 4}
    assert read_commit_metadata(fence_metadata(removing, "t2"))["removes"] == wanted
    assert read_commit_metadata(fence_metadata(removing, "t2", 9))["removes"] == {**wanted, "to": 9}
    job = replace(JOB, batches=(), fence=removing)
    assert JobSpec.from_json(job.to_json()) == job


def test_a_fence_report_from_before_fences_removed_rows_is_read():
    old = json.loads(FENCE_REPORT.to_json())
    del old["has_removed"], old["removed_rows"], old["evidence"]

    assert decode(FenceReport, json.dumps(old)) == replace(FENCE_REPORT, removed_rows=None, evidence=None)


@pytest.mark.parametrize("evidence", [{"removed": [{}]}, {"newest": "7"}, {"newest": -1}, 5], ids=str)
def test_a_fence_report_with_evidence_that_is_invalid_is_refused(evidence):
    raw = json.loads(FENCE_REPORT.to_json()) | {"evidence": evidence}
    with pytest.raises(ValueError):
        decode(FenceReport, json.dumps(raw))


def test_a_job_spec_from_before_there_were_fences_is_read():
    old = json.loads(JOB.to_json())
    del old["fence"]

    assert JobSpec.from_json(json.dumps(old)) == JOB


def test_the_fence_report_is_the_golden_file_and_is_read_back():
    assert FENCE_REPORT.to_json() + b"\n" == (GOLDEN / "fence_report.json").read_bytes()
    assert decode(FenceReport, (GOLDEN / "fence_report.json").read_text()) == FENCE_REPORT


def test_the_fence_report_keeps_its_warnings():
    report = replace(FENCE_REPORT, warnings=("another writer took out rows",))
    assert decode(FenceReport, report.to_json()) == report


def test_the_fence_report_keeps_the_account_of_each_table_of_a_function():
    gone = TableWrite((2 << 32) + 2, 5, "gone", undone_at=6, digest="d1")
    found = TableWrites(7, (gone,), TableWrite((2 << 32) + 1, 4), gone, broken_at=6, restored_to=3)
    report = replace(FENCE_REPORT, writes=("orders",), tables={"orders": found})
    assert decode(FenceReport, report.to_json()) == report


def test_the_metadata_of_a_fence_says_which_epoch_it_opens():
    read = read_commit_metadata(fence_metadata(FENCE, "t2"))

    assert read is not None
    assert (read["stream"], read["epoch"], read["fence"], read["attempt"]) == ("orders_to_bronze", 3, 3 << 32, "t2")


def test_an_attempt_report_survives_a_round_trip():
    assert decode(AttemptReport, REPORT.to_json().decode()) == REPORT


def test_the_job_spec_is_the_golden_file():
    assert JOB.to_json() + b"\n" == (GOLDEN / "job_spec.json").read_bytes()


def test_the_attempt_report_is_the_golden_file():
    assert REPORT.to_json() + b"\n" == (GOLDEN / "attempt_report.json").read_bytes()


def test_the_commit_metadata_names_a_sink_that_does_not_append():
    assert read_commit_metadata(commit_metadata(BATCH, "t1", {}, "delta_merge"))["sink"] == "delta_merge"
    assert "sink" not in read_commit_metadata(commit_metadata(BATCH, "t1", {}))


def test_the_commit_metadata_is_the_golden_file():
    text = commit_metadata(BATCH, "t1", {"spark.sql.files.ignoreCorruptFiles": "false"})

    assert text + "\n" == (GOLDEN / "commit_metadata.json").read_text()


# D40
def test_golden_files_are_read_back():
    assert JobSpec.from_json((GOLDEN / "job_spec.json").read_text()) == JOB
    assert decode(AttemptReport, (GOLDEN / "attempt_report.json").read_bytes()) == REPORT
    read = read_commit_metadata((GOLDEN / "commit_metadata.json").read_text().rstrip())
    assert read is not None
    assert (read["epoch"], read["batch_id"], read["digest"]) == (2, 3, BATCH.manifest_digest)


# D40
@pytest.mark.parametrize(
    ("read", "value", "what"),
    [(JobSpec.from_json, JOB, "job spec"), (partial(decode, AttemptReport), REPORT, "attempt report")],
)
@pytest.mark.parametrize("number", [0, 2, None, True])
def test_another_format_is_refused_with_both_numbers(read, value, what, number):
    raw = json.loads(value.to_json())
    raw["format"] = number

    with pytest.raises(ValueError, match=rf"the {what} has format {number}, but this version of FDS reads format 1"):
        read(json.dumps(raw))


@pytest.mark.parametrize("text", [None, "", "by hand", "{torn", '{"fds":2}', '{"other":1}', "{}"])
def test_metadata_of_a_commit_that_is_not_ours_is_not_an_error(text):
    assert read_commit_metadata(text) is None


@pytest.mark.parametrize(
    ("outcome", "is_done"), [("written", True), ("verified", True), ("mismatch", False), ("failed", False)]
)
def test_a_batch_is_done_when_the_sink_has_it_and_the_count_agrees(outcome, is_done):
    assert replace(REPORT, outcome=outcome).is_done is is_done


def test_transaction_versions_rise_with_batches_and_epochs_with_the_fence_in_between():
    assert txn_version(1, 0) == 2**32 + 1
    assert txn_version(1, 0) < txn_version(1, 1) < txn_version(1, 2**32 - 2) < fence_version(2) < txn_version(2, 0)
    assert (BATCH.txn_app_id, BATCH.txn_version) == (f"fds:{BATCH.uuid}", 2 * 2**32 + 4)


def test_report_names_are_folders_of_epoch_and_batch():
    assert report_name(2, 3, "t1") == "2/3/t1.json"
    assert started_name(2, 3, "t1") == "2/3/t1.started.json"


SHARED = (
    "checked_json",
    "report",
    "sink.commit_metadata",
    "sink.loaded_streams",
    "sink.sink_account",
    "sink.sink_commit",
    "sink.table_account",
    "spec",
    "table_writes",
    "transactions",
    "version_ranges",
)


@pytest.mark.parametrize("module", SHARED)
def test_the_driver_needs_nothing_but_the_standard_library(module):
    path = Path(batch_package.__file__).parent / f"{module.replace('.', '/')}.py"
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    inside = {f"airflow_provider_fds.batch.{name}" for name in SHARED}
    imported = {
        name if name in inside else name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }

    assert imported <= sys.stdlib_module_names | inside


def test_the_name_of_a_job_spec_binds_its_bytes():
    data = JOB.to_json()
    uri = f"s3a://staging/orders/jobs/2/3/{job_name('t1', data)}"

    assert JobSpec.from_file(uri, data) == JOB
    with pytest.raises(SpecChangedError, match="was changed after it was written"):
        JobSpec.from_file(uri, replace(JOB, sink={"kind": "delta_append", "uri": "s3a://stranger/table"}).to_json())
    for other in ("t1.job.json", f"{job_name('t1', data)}.json", ""):
        with pytest.raises(SpecChangedError, match="does not contain the SHA-256"):
            JobSpec.from_file(f"s3a://staging/orders/jobs/2/3/{other}", data)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows_read": 1.5},
        {"rows_written": "3"},
        {"rows_written": True},
        {"bytes_written": -2},
        {"files_written": 2**63},
        {"sink_table_id": 5},
        {"seconds": {"write": "x"}},
        {"seconds": {"write": -1.0}},
        {"seconds": []},
        {"settings": {"a": 1}},
        {"retryable": "no"},
        {"outcome": None},
        {"outcome": "fine"},
        {"sink_version": 2**64},
        {"sink_version": -1},
        {"epoch": -1},
        {"tables": {"a": -5}},
    ],
    ids=str,
)
def test_a_report_of_the_wrong_types_or_ranges_is_refused(changes):
    raw = json.loads(REPORT.to_json()) | changes
    with pytest.raises(ValueError, match="the attempt report"):
        decode(AttemptReport, json.dumps(raw))


def test_a_newer_drivers_fields_are_ignored_at_every_depth():
    report = json.loads(REPORT.to_json()) | {"newer": [1]}
    fence = json.loads(FENCE_REPORT.to_json()) | {"newer": {}}
    for value in (fence["landed"][0], fence["evidence"], fence["evidence"]["removed"][0]):
        value["newer"] = 1

    assert decode(AttemptReport, json.dumps(report)) == REPORT
    assert decode(FenceReport, json.dumps(fence)) == FENCE_REPORT


@pytest.mark.parametrize("depth", range(700, 1000, 7))
def test_a_report_that_is_nested_almost_too_deeply_is_refused_as_a_value_error(depth):
    text = json.dumps(json.loads(REPORT.to_json()) | {"uuid": 0}).replace(
        '"uuid": 0', f'"uuid": {"[" * depth}{"]" * depth}'
    )
    with pytest.raises(ValueError, match="the attempt report"):
        decode(AttemptReport, text)


@pytest.mark.parametrize(
    "text", ["[]", "1", "null", "[" * 100_000, "{}"], ids=["list", "number", "null", "nested", "empty"]
)
def test_what_is_not_an_object_is_refused_as_a_value_error(text):
    for read in (partial(decode, AttemptReport), partial(decode, FenceReport), JobSpec.from_json):
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize("landed", [[5], [{}], [{"epoch": "x"}], {}], ids=str)
def test_a_fence_report_with_invalid_batches_is_refused(landed):
    raw = json.loads(FENCE_REPORT.to_json()) | {"landed": landed}
    with pytest.raises(ValueError):
        decode(FenceReport, json.dumps(raw))
