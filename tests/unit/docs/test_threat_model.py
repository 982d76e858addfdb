"""The policies to copy are JSON, and grant what the layout of staging asks for and no more."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from airflow_provider_fds.batch.report import report_name
from airflow_provider_fds.batch.spec import job_name
from airflow_provider_fds.ledger.layout import StreamFolder, status_key

ROOT = Path(__file__).parents[3]
POLICIES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "docs/policies").glob("*.json")}
RUN, SPARK = POLICIES["s3-run"], POLICIES["s3-spark"]

FOLDER = StreamFolder("orders")
ENTRY, FOLD = FOLDER.entry(3), FOLDER.fold(3)
MANIFEST = FOLDER.below("manifests/1/0-ab/_delta_log/00000000000000000000.json")
JOB = f"{FOLDER.job_specs(1, 0)}/{job_name('t1', b'')}"
REPORT = f"{FOLDER.attempts}/{report_name(1, 0, 't1')}"
STAGING = [ENTRY, FOLD, MANIFEST, JOB, REPORT, FOLDER.cleaned, f"{FOLDER.snapshots}/0-ab.parquet", status_key("orders")]


def allows(policy, action, key):
    granted = False
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        actions, resources = statement["Action"], statement["Resource"]
        actions = [actions] if isinstance(actions, str) else actions
        resources = [resources] if isinstance(resources, str) else resources
        granted |= action in actions and any(fnmatchcase(f"arn:aws:s3:::lake/{key}", each) for each in resources)
    return granted


@pytest.mark.parametrize("key", STAGING)
def test_a_run_reads_writes_and_deletes_all_of_its_stream_and_nothing_of_another(key):
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert allows(RUN, action, f"fds/{key}")
        assert not allows(RUN, action, f"fds/{key}".replace("orders", "payroll"))


@pytest.mark.parametrize(
    ("key", "reads", "writes"),
    [
        (ENTRY, False, False),
        (FOLD, False, False),
        (FOLDER.cleaned, False, False),
        (MANIFEST, True, False),
        (JOB, True, False),
        (REPORT, True, True),
    ],
)
def test_spark_reads_jobs_and_manifests_and_writes_its_reports_alone(key, reads, writes):
    assert allows(SPARK, "s3:GetObject", f"fds/{key}") is reads
    assert allows(SPARK, "s3:PutObject", f"fds/{key}") is writes
    assert not allows(SPARK, "s3:DeleteObject", f"fds/{key}")


def test_neither_writes_the_source_and_only_spark_writes_the_sink():
    for policy in (RUN, SPARK):
        assert allows(policy, "s3:GetObject", "orders/_delta_log/00000000000000000000.json")
        assert not allows(policy, "s3:PutObject", "orders/_delta_log/00000000000000000000.json")
        assert allows(policy, "s3:GetObject", "bronze/orders/_delta_log/00000000000000000000.json")
        assert not allows(policy, "s3:GetObject", "payroll/x.parquet")
    assert allows(SPARK, "s3:PutObject", "bronze/orders/x.parquet")
    assert not allows(RUN, "s3:PutObject", "bronze/orders/x.parquet")


def test_the_other_clouds_name_the_same_prefixes():
    others = [json.dumps(policy) for name, policy in POLICIES.items() if not name.startswith("s3-")]
    assert len(others) == 4
    for text in others:
        written = "attempts/" if "attempts/" in text else "fds/orders/"
        assert written in text
    assert sum("fds/orders/attempts/" in text for text in others) == 2
    for text in others:
        assert ("fds/orders/ledger" in text) is False


def test_security_and_threat_model_are_linked_from_the_first_pages():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(SECURITY.md)" in readme
    assert "(docs/threat_model.md)" in readme
    assert "(docs/threat_model.md)" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "(threat_model.md)" in (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")


def test_the_page_links_to_every_policy():
    page = (ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8")
    assert len(POLICIES) == 6
    assert [name for name in POLICIES if f"(policies/{name}.json)" not in page] == []
