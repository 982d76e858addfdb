"""What travels to the driver: the same bytes every time, and nothing the driver does not have."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.submission.driver_zip import driver_zip, job_file


def test_the_zip_is_the_same_to_the_byte_and_named_by_its_content(tmp_path):
    one, other = driver_zip(tmp_path / "one"), driver_zip(tmp_path / "other")
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()
    assert driver_zip(tmp_path / "one") == one


def test_the_zip_imports_with_the_standard_library_alone(tmp_path):
    # -I -S: no site-packages, no user site, no PYTHONPATH
    code = (
        f"import sys; sys.path.insert(0, {str(driver_zip(tmp_path))!r});"
        "from airflow_provider_fds.batch.spec import JobSpec;"
        "from airflow_provider_fds.sinks import DeltaAppendSink;"
        "import airflow_provider_fds.spark.application.job as job;"
        "print(job.__file__)"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ".zip/airflow_provider_fds/spark/application/job.py" in ran.stdout


def test_every_module_of_the_zip_imports_with_the_standard_library_or_lacks_only_pyspark(tmp_path):
    # also those that a job imports when it needs them, as a sink's writer
    code = (
        f"import sys; sys.path.insert(0, {str(driver_zip(tmp_path))!r});"
        "import importlib, zipfile\n"
        "for name in zipfile.ZipFile(sys.path[0]).namelist():\n"
        "    try:\n"
        "        importlib.import_module(name.removesuffix('.py').removesuffix('/__init__').replace('/', '.'))\n"
        "    except ModuleNotFoundError as error:\n"
        "        if error.name.partition('.')[0] not in ('pyspark', 'py4j'):\n"
        "            print(name, error)\n"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_every_module_of_the_zip_is_python_3_9(tmp_path):
    with zipfile.ZipFile(driver_zip(tmp_path)) as archive:
        for name in archive.namelist():
            ast.parse(archive.read(name), name, feature_version=(3, 9))


def test_the_zip_has_nothing_of_the_airflow_side(tmp_path):
    with zipfile.ZipFile(driver_zip(tmp_path)) as archive:
        paths = [Path(name) for name in archive.namelist() if name != "__main__.py"]
        names = {path.relative_to("airflow_provider_fds").as_posix() for path in paths}
        filled = [n for n in names if n.endswith("__init__.py") and archive.read(f"airflow_provider_fds/{n}")]
        assert sorted(filled) == ["sinks/__init__.py", "spark/__init__.py"]
    assert "spark/application/job.py" in names
    assert not names & {
        "errors.py",
        "spark/submission/launch.py",
        "spark/submission/submit.py",
        "spark/installation/install.py",
        "batch/manifest/manifest.py",
    }


def test_python_runs_the_zip_as_the_application(tmp_path):
    ran = subprocess.run([sys.executable, "-I", driver_zip(tmp_path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (11, "usage: job.py <uri of the job spec>\n")


def test_the_application_file_exists():
    assert job_file().name == "job.py"
    assert job_file().is_file()


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SparkSetupError, match="FDS_CACHE_DIR"):
        driver_zip(tmp_path / "file")
