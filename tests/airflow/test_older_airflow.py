"""Names that Airflow 3.1 has elsewhere are found there."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

from airflow_provider_fds.operators import delta_ingest


def test_the_timeout_of_a_deferral_is_found_where_airflow_3_1_has_it(monkeypatch):
    class Older(Exception):  # noqa: N818
        pass

    modules = {
        "airflow.sdk.exceptions": SimpleNamespace(),
        "airflow.exceptions": SimpleNamespace(TaskDeferralTimeout=Older),
    }
    monkeypatch.setattr(delta_ingest, "import_module", modules.__getitem__)
    assert delta_ingest._deferral_timeout() is Older


def test_the_timeout_of_a_deferral_is_the_one_that_this_airflow_raises():
    bases = import_module("airflow.sdk.bases.operator")
    raised = delta_ingest._deferral_timeout()
    assert raised.__name__ == "TaskDeferralTimeout"
    assert getattr(bases, "TaskDeferralTimeout", raised) is raised
