"""The next job of a driver that lingers: only the run that started the driver can give it one."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.next_job import KEY_SETTING, next_job, next_job_name, read_next_job
from airflow_provider_fds.credentials import is_secret

KEY = "0" * 64


@pytest.mark.parametrize("spec_uri", ["s3a://lake/staging/orders/attempts/1/7/a-00.job.json", None])
def test_it_comes_back_as_it_went(spec_uri):
    assert read_next_job(next_job("a", spec_uri, KEY), "a", KEY) == spec_uri


def test_its_name_is_that_of_the_attempt_before():
    assert next_job_name("a") == "a.next.json"


@pytest.mark.parametrize(
    "data",
    [
        next_job("a", "file:/job", "1" * 64),
        next_job("b", "file:/job", KEY),
        json.dumps({"spec_uri": "file:/other", "code": json.loads(next_job("a", "file:/job", KEY))["code"]}).encode(),
        json.dumps({"spec_uri": "file:/job"}).encode(),
        json.dumps({"spec_uri": 7, "code": "x"}).encode(),
        json.dumps({"spec_uri": None, "code": None}).encode(),
        b"[" * 100_000,
        b"",
        b"null",
    ],
)
def test_what_another_one_has_written_is_refused(data):
    with pytest.raises(ValueError, match="was not written by the run that started this driver"):
        read_next_job(data, "a", KEY)


def test_the_key_is_a_secret_wherever_settings_are_shown():
    assert is_secret(KEY_SETTING, KEY)
