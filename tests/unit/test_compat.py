"""The tests that run on older Sparks need only what is installed there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_test_of_the_driver_imports_what_the_environments_of_older_sparks_lack():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    there = {name.split(">")[0] for name in groups["driver-tests"]}
    lacking = {"yaml", "airflow", "moto", "psutil", "jsonschema"}
    assert not lacking & there
    program = f"""
import importlib, sys
sys.path.insert(0, {str(ROOT / "scripts")!r})
import compat

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {lacking!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Lacking())
for conftest in ("tests.interop.conftest", "tests.interop.spark.conftest"):
    importlib.import_module(conftest)
for test in compat.TESTS:
    importlib.import_module(test.removesuffix(".py").replace("/", "."))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
