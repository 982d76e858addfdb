"""Names that Airflow 3.1 has elsewhere are found there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_fds import airflow_version
from airflow_provider_fds.airflow_version import sdk_exception

NAMES = ("TaskDeferralTimeout", "AirflowRescheduleException")


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_is_found_where_airflow_3_1_has_it(monkeypatch, name):
    older = type(name, (Exception,), {})
    modules = {"airflow.sdk.exceptions": SimpleNamespace(), "airflow.exceptions": SimpleNamespace(**{name: older})}
    monkeypatch.setattr(airflow_version, "import_module", modules.__getitem__)
    assert sdk_exception(name) is older


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_is_found_in_this_airflow(name):
    assert sdk_exception(name).__name__ == name
