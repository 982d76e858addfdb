"""``fds admin prepare``: what a first run would fetch and make."""

from __future__ import annotations

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.spark.installation import install
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.submission import class_archive, submit
from airflow_provider_fds.spark.submission.submit import SubmitArguments


def arguments_with(archive):
    return SubmitArguments(
        master="local[2]",
        deploy_mode="client",
        application="job.py",
        application_args=(),
        conf={},
        jars=None,
        driver_class_path="/jars/delta.jar",
        py_files="driver.zip",
        class_archive=archive,
    )


def run(monkeypatch, capsys, archive):
    monkeypatch.setattr(install, "java_problem", lambda: None)
    monkeypatch.setattr(submit, "submit_arguments", lambda *_, **__: arguments_with(archive))
    code = main(["admin", "prepare"])
    return code, capsys.readouterr()


def test_it_says_where_jars_and_archive_are(monkeypatch, capsys, tmp_path):
    archive = class_archive.ClassArchive(tmp_path, "key", "/jars/delta.jar", "")
    made = tmp_path / "key-1.jsa"
    made.write_bytes(b"x")
    code, said = run(monkeypatch, capsys, archive)
    assert (code, said.out) == (0, f"JARs: /jars/delta.jar\nclass archive: {made}\n")


def test_it_reports_where_an_archive_is_impossible(monkeypatch, capsys):
    code, said = run(monkeypatch, capsys, None)
    assert code == 0
    assert "switched off (FDS_CLASS_ARCHIVE)" in said.out


def test_jars_that_cannot_be_had_are_an_error(monkeypatch, capsys):
    def fail(*_, **__):
        raise SparkSetupError("no repository")

    monkeypatch.setattr(install, "java_problem", lambda: None)
    monkeypatch.setattr(submit, "submit_arguments", fail)
    assert main(["admin", "prepare"]) == 2
    assert "no repository" in capsys.readouterr().err
