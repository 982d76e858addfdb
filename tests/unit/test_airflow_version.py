"""An Airflow that is too old is named by its version, with the one that is needed and the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_fds.airflow_version import check_airflow
from airflow_provider_fds.errors import ConfigurationError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["3.0.6", "2.11.2", "3.0.0rc1"])
def test_an_older_airflow_is_refused_with_the_command(monkeypatch, version):
    monkeypatch.setitem(sys.modules, "airflow", SimpleNamespace(__version__=version))
    needed = rf"Airflow {version} is installed, but FDS needs Airflow 3\.1 or newer.*pip install 'apache-airflow>=3\.1"
    with pytest.raises(ConfigurationError, match=needed):
        check_airflow()


@pytest.mark.parametrize("version", ["3.1.0", "3.3.2", "3.10.0", "4.0.0"])
def test_a_newer_airflow_is_accepted(monkeypatch, version):
    monkeypatch.setitem(sys.modules, "airflow", SimpleNamespace(__version__=version))
    check_airflow()


@pytest.mark.parametrize(
    "statement",
    [
        "from airflow_provider_fds import DeltaIngestOperator",
        "from airflow_provider_fds.sensors.delta_table_version import DeltaTableVersionSensor",
        "from airflow_provider_fds import DeltaTableVersionTrigger",
        "from airflow_provider_fds import DeltaTableHook",
        "import airflow_provider_fds.decorators.delta_batch",
    ],
)
def test_every_import_of_the_airflow_side_says_it_before_a_name_is_missing(tmp_path, statement):
    for name in ("apache_airflow_core", "apache_airflow"):
        info = tmp_path / f"{name}-3.0.6.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 3.0.6\n")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ran = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(
        "airflow_provider_fds.errors.ConfigurationError: Airflow 3.0.6 is installed, but FDS needs Airflow 3.1 or newer"
    )
