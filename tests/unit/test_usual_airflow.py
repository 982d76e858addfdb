"""FDS installs beside a usual Airflow: the pins of its 14 most used providers stay, and next to nothing is added.

``usual_airflow/airflow-3.x.txt`` are such pins, of the newest patch version of each minor version with the providers of
its time, for each Python (``uv pip compile --universal``, see the target ``usual-airflow`` of the Makefile). uv also
resolves for a Python that is not installed.
"""

from __future__ import annotations

import functools
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
PYTHONS = ("3.11", "3.12", "3.13")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: All that FDS adds to such an installation, as ``docs/compatibility.md`` says.
ADDED = {"obstore", "pyroaring"}

#: What extras add beside them.
ADDED_BY = {
    "": set(),
    "s3,gcs,azure,hdfs,hive,glue,unity": {"hdfs-native", "pymetastore"},
    "connect": set(),
    "postgres": {"psycopg", "psycopg-binary"},
    "local": {"pyspark", "py4j"},
}

_UNREACHABLE = re.compile(r"Failed to fetch|error sending request|Could not connect|dns error|timed out", re.IGNORECASE)


def suits(extra: str, airflow: str) -> bool:
    # Airflow 3.1 comes with pyspark 4.1, which has the client in it and shares its files with pyspark-client
    return airflow != "3.1" or extra not in ("connect", "local")


def pins(text: str, python: str) -> dict[str, str]:
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    found = [Requirement(line) for line in text.splitlines()]
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one in found
        if one.marker is None or one.marker.evaluate(environment)
    }


def resolve(airflow: str, extras: str, *arguments: str) -> str:
    chosen = [f"--extra={extra}" for extra in extras.split(",") if extra]
    command = [
        *(str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header", "--no-annotate"),
        *("--config-file", str(FOLDER / "uv.toml"), "--constraints", str(FOLDER / f"airflow-{airflow}.txt")),
        *(*chosen, "pyproject.toml", str(FOLDER / "providers.in"), *arguments),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if arguments[-1] == "--offline" and "the network was disabled" in ran.stderr:
        # this Python needs another file of some package
        return resolve(airflow, extras, *arguments[:-1])
    if ran.returncode != 0 and _UNREACHABLE.search(ran.stderr):
        pytest.fail(f"no package index answers, so nothing was resolved: {ran.stderr[-500:]}")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@functools.cache
def fetched(airflow: str) -> None:
    """Ask the index once for everything: it takes longer than all resolutions from uv's cache together."""
    resolve(
        airflow, ",".join(extra for extra in ADDED_BY if suits(extra, airflow)), "--universal", "--python-version=3.11"
    )


def test_there_are_pins_for_every_airflow_from_3_1_on():
    assert AIRFLOWS == ["3.1", "3.2", "3.3"]
    providers = {line for line in (FOLDER / "providers.in").read_text().splitlines() if not line.startswith("#")}
    assert len(providers) == 14
    for airflow in AIRFLOWS:
        text = (FOLDER / f"airflow-{airflow}.txt").read_text()
        assert "://" not in text
        for python in PYTHONS:
            assert providers <= set(pins(text, python))
            assert pins(text, python)["apache-airflow"].startswith(f"{airflow}.")


def test_every_extra_is_resolved():
    assert set(",".join(filter(None, ADDED_BY)).split(",")) == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("airflow", AIRFLOWS)
def test_the_pins_of_a_usual_airflow_satisfy_every_bound_of_this_package(airflow, python):
    pinned = pins((FOLDER / f"airflow-{airflow}.txt").read_text(), python)
    missing = set()
    for requirement in map(Requirement, PROJECT["dependencies"]):
        name = canonicalize_name(requirement.name)
        if name not in pinned:
            missing.add(name)
        else:
            assert requirement.specifier.contains(pinned[name]), f"{requirement}: {pinned[name]} is pinned"
    assert missing == ADDED


@pytest.mark.skipif(not os.environ.get("FDS_RESOLVE"), reason="needs a package index: make usual-airflow")
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("airflow", "extras"), [(airflow, extras) for airflow in AIRFLOWS for extras in ADDED_BY if suits(extras, airflow)]
)
def test_a_resolver_adds_nothing_but_what_the_page_says(airflow, extras, python):
    fetched(airflow)
    before = pins((FOLDER / f"airflow-{airflow}.txt").read_text(), python)
    found = resolve(airflow, extras, f"--python-version={python}", "--python-platform=linux", "--offline")
    after = pins(found, python)
    assert {name: version for name, version in after.items() if name in before} == {
        name: version for name, version in before.items() if name in after
    }
    # Airflow 3.3 has psycopg already
    assert set(after) - set(before) == ADDED | (ADDED_BY[extras] - set(before))


@pytest.mark.skipif(not os.environ.get("FDS_RESOLVE"), reason="needs a package index: make usual-airflow")
def test_the_package_starts_after_a_real_installation_with_the_pins(tmp_path):
    uv, python = Path(sys.executable).with_name("uv"), tmp_path / "venv" / "bin" / "python"
    pinned = FOLDER / f"airflow-{AIRFLOWS[-1]}.txt"
    for command in (
        [uv, "venv", "--python", sys.executable, tmp_path / "venv"],
        [uv, "pip", "install", "--python", python, "--constraints", pinned, f"{ROOT}[hdfs]"],
        [uv, "pip", "check", "--python", python],
        [python.with_name("fds"), "--version"],
    ):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-3000:]
