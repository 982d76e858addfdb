"""What is published: a wheel that holds the package and its examples, an sdist that holds the project."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import airflow_provider_fds

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_provider_fds"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built as for a release."""
    folder = tmp_path_factory.mktemp("dist")
    run("hatchling", "build", "-d", str(folder))
    return folder


def run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel(dist: Path) -> zipfile.ZipFile:
    (path,) = dist.glob("*.whl")
    return zipfile.ZipFile(path)


def test_twine_and_check_wheel_contents_find_nothing(dist):
    run("twine", "check", "--strict", *map(str, dist.iterdir()))
    run("check_wheel_contents", str(next(dist.glob("*.whl"))))


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(dist):
    there = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    with wheel(dist) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == there
    assert {
        "airflow_provider_fds/py.typed",
        "airflow_provider_fds/__init__.pyi",
        "airflow_provider_fds/example_dags/orders_to_bronze.py",
        "airflow_provider_fds/example_dags/.airflowignore",
        "airflow_provider_fds/spark/jars/fds-connect.jar",
        "airflow_provider_fds/spark/jars/fds-s3-log-store.jar",
    } <= names


def test_the_folder_dags_shows_the_examples_of_the_package():
    assert (ROOT / "dags").resolve() == PACKAGE / "example_dags"


def test_the_sdist_holds_what_builds_tests_and_describes_the_project(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"][
        "include"
    ]
    for entry in wanted:
        if entry != "dags":  # a link to the examples, which are there
            assert any(name == entry or name.startswith(f"{entry}/") for name in names), entry
    assert not [name for name in names if name.startswith((".venv", "dist/", "site/"))]


def test_the_metadata_claims_the_pythons_that_run_and_this_version(dist):
    with wheel(dist) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == airflow_provider_fds.__version__ == "0.2.0"
    pythons = [one for one in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", one)]
    assert pythons == [f"Programming Language :: Python :: {version}" for version in ("3.11", "3.12", "3.13")]


def test_the_metadata_is_valid_and_every_address_in_it_is_absolute(dist):
    with wheel(dist) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(name), validate=True)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")
    assert str(metadata.requires_python) == ">=3.11"
    extras = {"azure", "connect", "gcs", "glue", "hdfs", "hive", "local", "postgres", "s3", "unity"}
    assert set(metadata.provides_extra) == extras
    assert len(metadata.summary) <= 512
    for address in (metadata.project_urls or {}).values():
        assert address.startswith("https://")


def test_the_changelog_names_this_version_and_has_the_parts_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0].startswith(f"{airflow_provider_fds.__version__} - ")
    parts = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert parts
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_type_checkers_see_every_public_name_where_it_is_loaded_from():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    seen = {alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(seen) == set(airflow_provider_fds.__all__) - {"__version__"}
    for name, module in seen.items():
        path = ROOT / module.replace(".", "/")
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert name in source.read_text(encoding="utf-8"), f"{module} has no {name}"
    (names,) = (ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(names) == sorted(airflow_provider_fds.__all__)
