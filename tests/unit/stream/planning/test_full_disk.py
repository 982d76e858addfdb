"""A run that plans a large batch while the worker's temporary folder is full."""

from __future__ import annotations

import re

import pytest

from airflow_provider_fds.batch.manifest import manifest
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.source.planning import planned_files


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The temporary folder."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def table(log_builder):
    log_builder.create()
    log_builder.append(1_000)
    return log_builder


@pytest.mark.parametrize("what", ["the files of the batch", "its manifest"])
def test_a_batch_that_does_not_fit_on_the_local_disk_is_an_error_that_names_the_folder(
    bench, table, sink, scratch, monkeypatch, disk_of, what
):
    if what == "its manifest":
        monkeypatch.setattr(manifest, "_KEPT_BYTES", 1_000)
    else:
        monkeypatch.setattr(planned_files, "KEPT_FILES", 100)
    message = f"cannot write to the temporary folder {re.escape(str(scratch))}: File too large.*large batch.*TMPDIR"
    session = bench.session()
    with disk_of(20_000), pytest.raises(StorageError, match=message) as error:
        session.begin(sink)
    assert error.value.retryable
    assert not list(scratch.iterdir())
    # there is space again
    assert bench.run_once(sink, "run-2")[1].status == "work"


def test_a_temporary_folder_that_is_not_there_is_named(bench, table, sink, scratch, monkeypatch):
    monkeypatch.setattr(planned_files, "KEPT_FILES", 100)
    scratch.rmdir()
    with pytest.raises(StorageError, match=f"temporary folder {re.escape(str(scratch))}: No such file"):
        bench.session().begin(sink)


def test_without_any_temporary_folder_the_error_names_those_that_were_tried(bench, table, sink, monkeypatch):
    monkeypatch.setattr(planned_files, "KEPT_FILES", 100)
    monkeypatch.setattr("tempfile.tempdir", None)
    # as on a machine whose disk is full
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/full/a", "/full/b"])
    with pytest.raises(StorageError, match=r"temporary folder.*'/full/a', '/full/b'.*TMPDIR"):
        bench.session().begin(sink)
