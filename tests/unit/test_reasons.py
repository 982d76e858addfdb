"""Every error has a reason code, and the page of reason codes says what the code says."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import airflow_provider_fds
from airflow_provider_fds import errors
from airflow_provider_fds.batch.report import AttemptReport
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.batch_failure import failure_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_provider_fds"


@cache
def kinds() -> tuple[type[FdsError], ...]:
    """All error classes of the package."""
    for part in ("ledger", "stream", "source", "delta", "batch"):
        package = importlib.import_module(f"airflow_provider_fds.{part}")
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")
    result, queue = [], [FdsError]
    while queue:
        result.append(queue.pop())
        queue += [kind for kind in result[-1].__subclasses__() if kind.__module__.startswith("airflow_provider_fds.")]
    return tuple(result)


@cache
def raised() -> dict[Reason, set[type[FdsError]]]:
    """Each reason with the classes of errors that have it, by the classes and by the calls in the package."""
    by_name = {kind.__name__: kind for kind in kinds()}
    by_name["refusal"] = errors.LedgerError
    found: dict[Reason, set[type[FdsError]]] = {}
    for kind in kinds():
        found.setdefault(kind.reason, set()).add(kind)
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            for given in call.keywords:
                if given.arg == "reason" and name in by_name:
                    for code in re.findall(r"Reason\.([A-Z_]+)", ast.unparse(given.value)):
                        found.setdefault(Reason[code], set()).add(by_name[name])
    for refused, retryable in refusals():
        report = AttemptReport("u", 1, 0, "d", "a", "failed", reason=refused, retryable=retryable)
        found.setdefault(refused, set()).add(failure_kind(report)[0])
    # chosen by a condition before the call
    found.setdefault(Reason.STREAM_HELD, set()).add(errors.StoppedError)
    found.setdefault(Reason.STREAM_QUARANTINED, set()).add(errors.StoppedError)
    found.setdefault(Reason.USER_FUNCTION_INTERRUPTED, set()).add(errors.BatchFailedError)
    return found


def refusals() -> Iterator[tuple[Reason, bool]]:
    """Yield the reason of each problem that the driver reports, and whether the driver wants a retry."""
    for path in (PACKAGE / "spark").rglob("*.py"):
        if path.name == "user_job.py":
            # shown by the user's own job
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("RefusalError", "Failure"):
                code = getattr(call.args[0], "attr", "")
                retryable = [ast.unparse(given.value) for given in call.keywords if given.arg == "retryable"]
                if code in Reason.__members__:
                    yield Reason[code], retryable == ["True"]


def rows() -> dict[str, tuple[str, str]]:
    """Each code of the page with ``retryable`` and exit code."""
    text = (ROOT / "docs" / "errors.md").read_text()
    return {
        line[1]: (line[2], line[3])
        for line in re.finditer(r"^\| `([A-Z_]+)` \| [^|]+ \| [^|]+ \| (yes|no) \| (\d) \|$", text, re.MULTILINE)
    }


def test_the_page_lists_every_code_once_and_no_other():
    assert sorted(rows()) == sorted(Reason)
    text = (ROOT / "docs" / "errors.md").read_text()
    assert sorted(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)) == sorted(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_the_page_says_whether_a_retry_helps_and_the_exit_code(reason):
    found = raised().get(reason)
    assert found, f"no error has {reason}"
    ways = {("yes" if kind.retryable else "no", str(kind.exit_code)) for kind in found}
    assert ways == {rows()[reason]}


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
