"""Every error has a reason code, and the page of reason codes says what the code says."""

from __future__ import annotations

import ast
import importlib.util
import pickle
import re
import sys
from pathlib import Path

import pytest

import airflow_provider_fds
from airflow_provider_fds import errors
from airflow_provider_fds.batch.report import AttemptReport
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.batch_failure import failure_kind

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_provider_fds"


def _script():
    spec = importlib.util.spec_from_file_location("reason_table", ROOT / "scripts" / "reason_table.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = _script()
kinds, raised, refusals = script.kinds, script.raised, script.refusals


def test_the_page_has_the_table_of_the_code():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert script.table() in text
    assert re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE) == [reason.value for reason in Reason]


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_has_a_meaning_what_to_do_and_one_way_to_end_a_task(reason):
    meaning, to_do = script.texts()[reason]
    assert meaning
    assert to_do
    found = raised().get(reason)
    assert found, f"no error has {reason}"
    assert len({(kind.retryable, kind.exit_code) for kind in found}) == 1


def test_a_reason_code_equals_its_name():
    assert [reason.name for reason in Reason] == [reason.value for reason in Reason]
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)*", reason) for reason in Reason)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_class_of_errors_has_a_reason(kind):
    assert isinstance(kind.reason, Reason)
    if kind is not FdsError:
        assert kind.reason is not Reason.INTERNAL_ERROR, "a bug has no class of its own"


def test_only_bugs_are_raised_without_a_class():
    calls = [
        ast.unparse(call)
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "FdsError"
    ]
    assert all("a bug in" in call for call in calls), calls


def test_every_refusal_of_the_driver_has_its_own_reason():
    refused = {reason for reason, _ in refusals()}
    assert len(refused) > 20
    assert not refused & {Reason.INTERNAL_ERROR, Reason.BATCH_FAILED, Reason.BATCH_REJECTED}


def test_a_reason_of_a_newer_driver_is_general_and_its_retry_rule_counts():
    for retryable, kind in ((True, errors.BatchFailedError), (False, errors.BatchRejectedError)):
        report = AttemptReport("u", 1, 0, "d", "a", "failed", error_class="X", reason="NEWER", retryable=retryable)
        assert failure_kind(report) == (kind, None)


def test_an_error_carries_its_facts():
    error = errors.ViolationError(
        "deletes rows", table="s3://lake/t", version=7, operation="DELETE", reason=Reason.SOURCE_ROWS_CHANGED
    )
    assert error.facts() == {
        "reason_code": "SOURCE_ROWS_CHANGED",
        "table": "s3://lake/t",
        "version": 7,
        "operation": "DELETE",
    }
    assert type(error.reason_code) is str
    assert errors.LogGapError("gone").facts() == {
        "reason_code": "LOG_GAP",
        "table": None,
        "version": None,
        "operation": None,
    }


def test_the_facts_survive_pickling():
    error = pickle.loads(pickle.dumps(errors.StreamBusyError("busy", owner="a run", table="t", version=1)))
    assert (error.owner, error.table, error.version, error.reason_code) == ("a run", "t", 1, "STREAM_BUSY")


def test_the_package_is_the_one_under_test():
    assert Path(airflow_provider_fds.__file__).parent == PACKAGE
