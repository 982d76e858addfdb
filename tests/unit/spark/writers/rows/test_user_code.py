"""A function of the user's is the user's, whatever files of FDS lie beside the application."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider_fds.spark.application import job
from airflow_provider_fds.spark.writers.rows.user_code import load_function

OWN = Path(job.__file__).parent


@pytest.mark.parametrize("name", ["progress", "batch_rows", "job_run"])
def test_a_user_module_with_the_name_of_one_of_ours_is_found(tmp_path, monkeypatch, name):
    assert (OWN / f"{name}.py").exists()
    (tmp_path / f"{name}.py").write_text("def go(df):\n    return 'mine'\n")
    # as Python starts a script: its folder comes first, then PYTHONPATH with what was shipped
    monkeypatch.setattr(sys, "path", [str(OWN), str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert job.main([]) == job.EXIT_FAILED
    assert load_function(f"{name}:go", "the transform", ("df",))(None) == "mine"
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_folder_of_the_users_that_comes_first_stays(tmp_path, monkeypatch):
    before = [str(tmp_path), *sys.path]
    monkeypatch.setattr(sys, "path", list(before))
    assert job.main([]) == job.EXIT_FAILED
    assert sys.path == before
