"""FDS installs beside a usual Airflow: the pins of its 14 most used providers stay, and next to nothing is added.

``usual_airflow/airflow-3.x.txt`` are such pins, of the newest patch version of each minor version with the providers of
its time, for Python 3.12 on Linux (``uv pip compile``, see the Makefile's target ``usual-airflow``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("usual_airflow")
AIRFLOWS = sorted(path.stem.removeprefix("airflow-") for path in FOLDER.glob("airflow-*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: All that FDS adds to such an installation, as ``docs/compatibility.md`` says.
ADDED = {"obstore", "pyroaring"}

#: What an extra adds beside them.
ADDED_BY = {"local": {"pyspark", "py4j"}, "s3,gcs,azure,hdfs": {"hdfs-native"}}

_UNREACHABLE = re.compile(r"Failed to fetch|error sending request|Could not connect|dns error|timed out", re.IGNORECASE)


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_there_are_pins_for_every_airflow_from_3_1_on():
    assert AIRFLOWS == ["3.1", "3.2", "3.3"]
    providers = {line for line in (FOLDER / "providers.in").read_text().splitlines() if not line.startswith("#")}
    assert len(providers) == 14
    for airflow in AIRFLOWS:
        text = (FOLDER / f"airflow-{airflow}.txt").read_text()
        assert "://" not in text
        assert providers <= set(pins(text))
        assert pins(text)["apache-airflow"].startswith(f"{airflow}.")


@pytest.mark.parametrize("airflow", AIRFLOWS)
def test_the_pins_of_a_usual_airflow_satisfy_every_bound_of_this_package(airflow):
    pinned = pins((FOLDER / f"airflow-{airflow}.txt").read_text())
    missing = set()
    for requirement in map(Requirement, PROJECT["dependencies"]):
        name = canonicalize_name(requirement.name)
        if name not in pinned:
            missing.add(name)
        else:
            assert requirement.specifier.contains(pinned[name]), f"{requirement}: {pinned[name]} is pinned"
    assert missing == ADDED


@pytest.mark.skipif(not os.environ.get("FDS_RESOLVE"), reason="needs a package index: make usual-airflow")
@pytest.mark.parametrize(
    ("airflow", "extra"),
    [
        *((airflow, extra) for airflow in AIRFLOWS for extra in ("", "s3,gcs,azure,hdfs")),
        # Airflow 3.1 comes with pyspark 4.1, which has the client in it and shares its files with pyspark-client
        *((airflow, extra) for airflow in AIRFLOWS if airflow != "3.1" for extra in ("connect", "local")),
    ],
)
def test_a_resolver_adds_nothing_but_what_the_page_says(airflow, extra, tmp_path):
    constraints = FOLDER / f"airflow-{airflow}.txt"
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"{ROOT}{f'[{extra}]' if extra else ''}\n{(FOLDER / 'providers.in').read_text()}")
    command = [
        *(str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header", "--no-annotate"),
        *("--python-version", "3.12", "--python-platform", "linux", "--constraints", str(constraints), str(wanted)),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    if ran.returncode != 0 and _UNREACHABLE.search(ran.stderr):
        pytest.fail(f"no package index answers, so nothing was resolved: {ran.stderr[-500:]}")
    assert ran.returncode == 0, ran.stderr[-3000:]
    before, after = pins(constraints.read_text()), pins(ran.stdout)
    after.pop("airflow-provider-fds", None)
    assert {name: version for name, version in after.items() if name in before} == {
        name: version for name, version in before.items() if name in after
    }
    assert set(after) - set(before) == ADDED | ADDED_BY.get(extra, set())
