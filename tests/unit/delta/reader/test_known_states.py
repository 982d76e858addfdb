"""A state that was read before takes the place of the log before it, as long as its commit is the same."""

from __future__ import annotations

import json
import os
import shutil

import msgspec
import pytest

from airflow_provider_fds.delta.reader.known_states import NEAR, KnownState, KnownStates
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.storage import ObjectMeta
from tests.counting_storage import CountingStorage


@pytest.fixture
def requests():
    return []


@pytest.fixture
def log(log_builder, requests):
    return DeltaLog(CountingStorage(LocalStorage(str(log_builder.root)), requests), KnownStates())


def kinds(requests):
    found = [request.kind for request in requests]
    requests.clear()
    return found


def widened(log_builder):
    return log_builder.commit(log_builder.metadata([log_builder.field("id"), log_builder.field("more")]))


def columns(state):
    return [field["name"] for field in json.loads(state.metadata.schemaString)["fields"]]


def test_a_known_version_costs_one_head(log, log_builder, requests):
    log_builder.with_appends(5)
    first = log.state_at(5)
    kinds(requests)
    assert log.state_at(5) == first
    assert kinds(requests) == ["head"]


def test_only_the_commits_after_a_known_version_are_read(log, log_builder, requests):
    log_builder.with_appends(5)
    log.state_at(5)
    widened(log_builder)
    log_builder.append()
    kinds(requests)
    assert columns(log.state_at(7)) == ["id", "more"]
    assert kinds(requests) == ["head", "list_after", "get", "get"]


def test_an_earlier_version_is_read_from_the_log(log, log_builder):
    log_builder.with_appends(2)
    widened(log_builder)
    assert columns(log.state_at(3)) == ["id", "more"]
    assert columns(log.state_at(2)) == ["id"]
    assert columns(log.state_at(3)) == ["id", "more"]


def test_a_later_checkpoint_is_used_if_the_known_version_is_far_behind(log, log_builder, requests):
    log_builder.with_appends(2)
    log.state_at(2)
    for _ in range(NEAR + 1):
        log_builder.append()
    known = log.known.up_to(2)
    log.known.add(msgspec.structs.replace(known, metadata=msgspec.structs.replace(known.metadata, name="known")))
    assert log.state_at(2 + NEAR).metadata.name == "known"
    assert log.state_at(3 + NEAR).metadata.name == "known"  # there is no checkpoint
    assert DeltaLog(log.storage).state_at(3 + NEAR).metadata.name is None


@pytest.mark.parametrize("change", ["rewritten", "replaced by a copy", "gone"])
def test_a_state_whose_commit_is_another_one_is_forgotten(log, log_builder, change):
    log_builder.with_appends(2)
    assert columns(log.state_at(2)) == ["id"]
    path = log_builder.log / f"{2:020d}.json"
    if change == "gone":
        path.rename(path.with_suffix(".bak"))
        (log_builder.log / f"{1:020d}.json").unlink()
        with pytest.raises(Exception, match="version"):
            log.state_at(2)
    else:
        first = log_builder.log / f"{0:020d}.json"
        first.write_text(first.read_text().replace('\\"id\\"', '\\"ID\\"'))
        if change == "rewritten":
            times = path.stat()
            path.write_bytes(path.read_bytes().replace(b"1000", b"1001"))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        else:
            shutil.copy2(path, f"{path}.copy")
            path.with_name(f"{path.name}.copy").replace(path)
        assert columns(log.state_at(2)) == ["ID"]
    assert log.known.up_to(1) is None


def test_without_etags_size_and_time_of_the_commit_count():
    known = KnownState(version=1, protocol={}, metadata={}, size_bytes=5, modified_ms=7)
    assert known.belongs_to(ObjectMeta("x", 5, 7))
    assert not known.belongs_to(ObjectMeta("x", 5, 8))
    assert not known.belongs_to(ObjectMeta("x", 6, 7))
    assert not known.belongs_to(None)
    tagged = msgspec.structs.replace(known, etag="a")
    assert tagged.belongs_to(ObjectMeta("x", 5, 8, "a"))  # a listing has another precision than an object
    assert not tagged.belongs_to(ObjectMeta("x", 5, 7, "b"))
    assert not tagged.belongs_to(ObjectMeta("x", 5, 7))


def test_a_state_is_kept_as_json(log, log_builder):
    log_builder.with_appends(1)
    log.state_at(1)
    known = log.known.up_to(1)
    again = msgspec.json.decode(msgspec.json.encode(known), type=KnownState)
    assert again == known
    assert again.belongs_to(log.storage.head(f"_delta_log/{1:020d}.json"))


def test_a_log_remembers_nothing_by_itself(log_builder, requests):
    log_builder.with_appends(1)
    log = DeltaLog(CountingStorage(LocalStorage(str(log_builder.root)), requests))
    log.state_at(1)
    read = kinds(requests)
    log.state_at(1)
    assert kinds(requests) == read
