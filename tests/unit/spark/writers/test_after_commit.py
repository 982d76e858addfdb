"""A write is waited for until its commit is in the log, without a session."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
from airflow_provider_fds.spark.writers import after_commit
from airflow_provider_fds.spark.writers.after_commit import AfterCommits, write_until_committed
from tests.unit.spark.batches import batch


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(after_commit, "_LOCAL_SECONDS", 0.001)
    monkeypatch.setattr(after_commit, "_PATIENCE_SECONDS", 0.01)


@pytest.fixture
def commits(monkeypatch):
    """The writes of one application."""
    mine = AfterCommits()
    monkeypatch.setattr(after_commit, "AFTER_COMMITS", mine)
    return mine


def committed(folder, version, one):
    folder.mkdir(exist_ok=True)
    metadata = commit_metadata(one, "try-1", {})
    lines = (
        {"commitInfo": {"operation": "WRITE", "userMetadata": metadata}},
        {"txn": {"appId": one.txn_app_id, "version": one.txn_version}},
    )
    (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


def test_a_write_that_still_works_after_its_commit_is_left_to_itself(tmp_path, commits):
    log, one, go_on = tmp_path / "_delta_log", batch(), threading.Event()
    another = replace(one, epoch=one.epoch + 1)

    def write():
        # a commit of another writer is not this one
        committed(log, 5, another)
        committed(log, 6, one)
        assert go_on.wait(60)

    write_until_committed(None, tmp_path.as_uri(), 4, one, write)
    assert commits.is_busy
    go_on.set()
    commits.wait(60)
    assert not commits.is_busy


@pytest.mark.parametrize("part", [slice(0), slice(40), slice(-3)], ids=["empty", "a_piece", "all_but_its_end"])
def test_a_commit_that_is_seen_before_it_is_whole_is_looked_at_again(tmp_path, part):
    log, one = tmp_path / "_delta_log", batch()
    look = after_commit._look(None, tmp_path.as_uri(), 4, one)
    committed(log, 5, one)
    file = log / f"{5:020}.json"
    whole = file.read_text()
    file.write_text(whole[part])
    assert not look()
    file.write_text(whole)
    assert look()


def test_a_write_without_a_commit_is_waited_for(tmp_path, commits):
    done = []
    write_until_committed(None, tmp_path.as_uri(), 4, batch(), lambda: done.append(1))
    assert done == [1]
    assert not commits.is_busy


def test_a_write_that_fails_raises_its_error(tmp_path, commits):
    def write():
        raise ValueError("no columns")

    with pytest.raises(ValueError, match="no columns"):
        write_until_committed(None, tmp_path.as_uri(), 4, batch(), write)


def test_an_error_after_the_commit_is_a_warning(commits, capsys):
    go_on = threading.Event()

    def write():
        assert go_on.wait(60)
        raise ValueError("no space left")

    commits.write(write, lambda: True, 0.001)
    assert commits.is_busy
    go_on.set()
    commits.wait(60)
    assert "FDS warning: after its commit, Delta failed: no space left" in capsys.readouterr().out


def test_a_second_write_is_waited_for_while_the_first_is_left_to_itself(commits):
    go_on, done = threading.Event(), []
    commits.write(lambda: go_on.wait(60), lambda: True, 0.001)
    assert commits.is_busy

    def second():
        threading.Event().wait(0.05)
        done.append(1)

    commits.write(second, lambda: True, 0.001)
    assert done == [1]
    go_on.set()
    commits.wait(60)


def test_a_log_that_cannot_be_read_is_no_commit(commits):
    def look():
        raise OSError("the store is away")

    done = []
    commits.write(lambda: (threading.Event().wait(0.02), done.append(1)), look, 0.001)
    assert done == [1]
