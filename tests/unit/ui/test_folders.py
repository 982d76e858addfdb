"""The staging folders of the page: a file that did not change is read once."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.stream.monitoring.status import StreamStatus
from airflow_provider_fds.stream.monitoring.status_file import write_status_file
from airflow_provider_fds.ui import folders
from airflow_provider_fds.ui.folders import StatusFolder
from tests.counting_storage import CountingStorage


@pytest.fixture
def staging(tmp_path):
    return LocalStorage(str(tmp_path / "staging"))


@pytest.fixture
def requests(staging, monkeypatch):
    """What the folder asks of staging; each of its reads is fresh."""
    found = []
    monkeypatch.setattr(folders, "open_storage", lambda *_: CountingStorage(staging, found))
    monkeypatch.setattr(folders, "_FRESH_SECONDS", 0.0)
    return found


def add(staging, *names, lag=0):
    for name in names:
        staging.put(f"{name}/ledger/x", b"")
        status = StreamStatus(name=name, table="t", phase="open", condition="waiting", lag_versions=lag)
        write_status_file(staging, status, None, written_by="monitor")


def test_only_files_that_changed_are_read_again(staging, requests):
    add(staging, "a", "b")
    folder = StatusFolder(staging.uri, dict)
    assert [*folder.read().rows] == ["a", "b"]
    assert sorted(one.kind for one in requests) == ["get", "get", "list_after", "list_folders"]
    requests.clear()
    folder.read()
    assert sorted(one.kind for one in requests) == ["list_after", "list_folders"]
    add(staging, "b", lag=7)
    requests.clear()
    assert folder.read().rows["b"].lag_versions == 7
    assert [one.key for one in requests if one.kind == "get"] == [".status/b.json"]


def test_browsers_that_ask_at_the_same_time_cost_one_listing(staging, requests, monkeypatch):
    monkeypatch.setattr(folders, "_FRESH_SECONDS", 60.0)
    add(staging, "a")
    folder = StatusFolder(staging.uri, dict)
    assert folder.read() is folder.read()
    folder.forget()
    add(staging, "b")
    assert [*folder.read().rows] == ["a", "b"]


def test_streams_without_a_file_and_files_without_a_stream(staging, requests):
    add(staging, "a", "gone", *(f"n{number}" for number in range(7)))
    for name in ("a", *(f"n{number}" for number in range(7))):
        staging.delete(f".status/{name}.json")
    staging.delete_folder("gone")
    staging.put(".status/notes.txt", b"")
    found = StatusFolder(staging.uri, dict).read()
    assert found.rows == {}
    assert [one.describe().split(" no status")[0] for one in found.problems] == [
        "Streams a, n0, n1, n2, n3 and 3 more have"
    ]


def test_a_file_that_is_too_large_for_a_status_is_not_read(staging, requests):
    add(staging, "a", "b")
    staging.put(".status/a.json", staging.get(".status/a.json")[0] + b" " * 2**20)
    found = StatusFolder(staging.uri, dict).read()
    assert [*found.rows] == ["b"]
    assert [one.key for one in requests if one.kind == "get"] == [".status/b.json"]
    assert found.problems[0].names == ["a"]


@pytest.mark.parametrize("time", ["yesterday", "2026-11-23T12:00:00", "", "2026-11-23"])
def test_a_file_without_a_time_hides_no_other_stream(staging, requests, time):
    add(staging, "a", "b")
    data = json.loads(staging.get(".status/a.json")[0])
    staging.put(".status/a.json", json.dumps({**data, "written_at": time}).encode())
    found = StatusFolder(staging.uri, dict).read()
    assert [*found.rows] == ["b"]
    assert [one.describe() for one in found.problems] == [
        "Stream a has a status file that this version of FDS cannot read."
    ]


def test_a_damaged_file_and_one_of_another_stream_are_named(staging, requests):
    add(staging, "a", "b")
    staging.put(".status/a.json", staging.get(".status/b.json")[0])
    staging.put(".status/b.json", b"{")
    found = StatusFolder(staging.uri, dict).read()
    assert found.rows == {}
    (problem,) = found.problems
    assert problem.describe() == "Streams a, b have a status file that this version of FDS cannot read."
    assert problem.describe(lambda name: name == "b").startswith("Stream b has")
    assert problem.describe(lambda _: False) is None
