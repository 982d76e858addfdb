"""The package works on a worker without Spark, which only starting it or calling a server needs, and on Airflow 3.1."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

_SPARK = ("pyspark", "py4j", "delta", "grpc")
#: What FDS uses of newer Airflows, where it is there.
_NEWER_THAN_AIRFLOW_3_1 = ("airflow.triggers.shared_stream",)

_IMPORT_ALL = """
import importlib, pkgutil, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(tuple(f"{lacking}." for lacking in sys.argv[1:])):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Lacking())
import airflow_provider_fds as package

for module in pkgutil.walk_packages(package.__path__, "airflow_provider_fds."):
    if ".example_dags" not in module.name:
        importlib.import_module(module.name)
for name in package.__all__:
    getattr(package, name)
print("all imported")
"""


@pytest.mark.parametrize("lacking", [_SPARK, _NEWER_THAN_AIRFLOW_3_1], ids=["Spark", "what is newer than Airflow 3.1"])
def test_every_module_imports_where_this_is_lacking(lacking):
    ran = subprocess.run([sys.executable, "-c", _IMPORT_ALL, *lacking], capture_output=True, text=True, check=False)
    assert ran.stdout.endswith("all imported\n"), ran.stderr[-2000:]


@pytest.mark.parametrize("name", ["pyspark", "delta-spark", "pyspark-client"])
def test_the_package_itself_requires_no_spark(name):
    required = [text for text in PROJECT["dependencies"] if text.startswith(name)]
    assert required == []
    assert not any("[pyspark]" in text for text in PROJECT["dependencies"])


def test_the_extra_with_a_spark_pins_a_pair_that_goes_together():
    pins = dict(text.split("==") for text in PROJECT["optional-dependencies"]["local"])
    assert pins["pyspark"] == pins["pyspark-client"]
    # Delta comes from Maven; with delta-spark the extra would not install beside the pins of a usual Airflow
    assert set(pins) == {"pyspark", "pyspark-client"}


def test_the_extra_of_spark_connect_is_the_client_alone():
    assert [text.split(">=")[0] for text in PROJECT["optional-dependencies"]["connect"]] == ["pyspark-client"]
