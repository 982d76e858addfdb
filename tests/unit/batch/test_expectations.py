"""Expectations: what a declaration may say, and how it crosses the border to the driver."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_fds import DeltaStream
from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata, read_commit_metadata
from airflow_provider_fds.batch.spec import BatchSpec, Expectations, JobSpec
from airflow_provider_fds.errors import ConfigurationError

EXPECT = {"amount >= 0": "drop", "`a b` IS NOT NULL": "warn", "lower(name) RLIKE '^[a-z(]+$'": "fail"}


def stream(**arguments):
    return DeltaStream("orders", table="s3://lake/orders", **arguments)


def test_a_stream_keeps_its_expectations_in_their_order():
    declared = stream(expect=EXPECT, max_rejected=0.01)
    assert declared.expectations == Expectations(EXPECT, 0.01)
    assert list(declared.expectations.expect) == list(EXPECT)
    assert DeltaStream.from_dict(declared.to_dict()) == declared
    assert declared.backfill(start=1, end=2).expectations == declared.expectations
    assert declared.fork("other").expectations == declared.expectations
    assert declared.fork("other", expect={"true": "warn"}, max_rejected=None).expectations == Expectations(
        {"true": "warn"}
    )
    assert "expect" not in stream().to_dict()


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ("amount >= 0", "expect must be a mapping of SQL expressions to actions"),
        ({"": "drop"}, "an expectation must be a SQL expression, got ''"),
        ({7: "drop"}, "an expectation must be a SQL expression, got 7"),
        ({"amount >= 0": "quarantine"}, "must be one of warn, drop, reject, fail, got 'quarantine'"),
        ({"amount >= 0": None}, "must be one of warn, drop, reject, fail, got None"),
        ({"amount >= {{ params.least }}": "drop"}, "is a template"),
        ({"amount >= (SELECT max(x) FROM t)": "drop"}, "contains a subquery"),
        ({"reflect('java.lang.System', 'exit', 0) = 0": "drop"}, "contains the function reflect"),
        ({"amount >= 0 -- or not": "drop"}, "contains a comment"),
        ({"name = 'O'Brien'": "drop"}, "contains an unterminated quote"),
        ({"true) OR (false": "drop"}, "contains a ')' without its '('"),
        ({"(amount >= 0": "drop"}, "contains a '(' without its ')'"),
        ({"true; DROP TABLE orders": "drop"}, "contains a ';'"),
        ({"amount < avg(amount)": "drop"}, "contains avg, a function of many rows"),
        (
            {"row_number() OVER (PARTITION BY id ORDER BY t) = 1": "drop"},
            "contains row_number, a function of many rows",
        ),
        ({"my_function(id) OVER (ORDER BY t) = 1": "drop"}, "contains a window"),
        ({"rand() < 0.5": "drop"}, "contains rand, whose result depends on when and where it is evaluated"),
        ({"at <= current_timestamp": "drop"}, "`_commit_timestamp` is the time of the row's commit"),
        ({"at <= `now`()": "drop"}, "contains now, whose result depends on"),
        ({"at <= timestamp'now'": "drop"}, "contains timestamp 'now', whose result depends on when"),
        ({"a > 0 AND " * 60 + "true": "drop"}, "an expression has at most 500 characters"),
        ({f"a > {n}": "warn" for n in range(101)}, "expect has 101 expectations; a stream has at most 100"),
    ],
)
def test_an_expectation_that_cannot_work_is_refused_in_the_declaration(expect, problem):
    with pytest.raises(ConfigurationError) as caught:
        stream(expect=expect)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text", ["`now` > 1 AND current > 0", "count > 0", "`max` >= min", "date = '2026-01-01'", "a = ';'"]
)
def test_columns_with_the_names_of_functions_can_be_tested(text):
    assert stream(expect={text: "warn"}).expectations.expect == {text: "warn"}


@pytest.mark.parametrize(
    ("share", "expect", "problem"),
    [
        (1.5, {"a > 0": "drop"}, "max_rejected must be a share from 0 to 1, such as 0.01, got 1.5"),
        (True, {"a > 0": "drop"}, "got True"),
        ("1%", {"a > 0": "drop"}, "got '1%'"),
        (0.1, {"a > 0": "warn"}, "max_rejected needs an expectation with the action 'drop' or 'reject'"),
        (0.1, None, "max_rejected needs expect"),
    ],
)
def test_a_share_that_cannot_work_is_refused_in_the_declaration(share, expect, problem):
    with pytest.raises(ConfigurationError) as caught:
        stream(expect=expect, max_rejected=share)
    assert problem in str(caught.value)


BATCH = BatchSpec("orders", "u1", 1, 0, "{}", "{}", "{}", 0, 1, "/m", "d", 1, 1, None, None)
JOB = JobSpec(batches=(BATCH,), sink={}, sink_table_id=None, sink_version=None, reports="/r", attempt_id="t1")


@pytest.mark.parametrize("expectations", [Expectations(EXPECT), Expectations(EXPECT, 0.25)])
def test_the_job_of_a_stream_has_its_expectations(expectations):
    job = replace(JOB, expectations=expectations)
    assert JobSpec.from_json(job.to_json()) == job
    assert list(JobSpec.from_json(job.to_json()).expectations.expect.items()) == sorted(EXPECT.items())


def test_a_job_and_a_commit_without_expectations_are_written_as_before():
    assert b"expect" not in JOB.to_json()
    assert "expect" not in commit_metadata(BATCH, "t1", {})
    told = read_commit_metadata(commit_metadata(BATCH, "t1", {}, expectations=Expectations(EXPECT)))
    assert told["expect"] == EXPECT
    assert json.loads(JOB.to_json())["format"] == 1


@pytest.mark.parametrize("percent", range(101))
def test_exactly_the_share_may_be_rejected_and_no_row_more(percent):
    expectations = Expectations({"id > 0": "drop"}, float(f"{percent / 100:.2f}"))
    assert not expectations.are_exceeded(percent, 100)
    assert not expectations.are_exceeded(percent * 7, 700)
    assert expectations.are_exceeded(percent + 1, 100)
    assert not expectations.are_exceeded(0, 0)
