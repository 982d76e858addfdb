"""Commits of several drivers on S3: Delta's own log store loses some, FDS's does not."""

from __future__ import annotations

import threading

import obstore
import pytest
from obstore.store import S3Store

from airflow_provider_fds.spark.submission.object_store import S3_LOG_STORE

DELTAS = "io.delta.storage.S3SingleDriverLogStore"
EXISTS = "java.nio.file.FileAlreadyExistsException"
ROUNDS = 30


def commit(server, version=0):
    return f"s3a://{server.bucket}/sink/_delta_log/{version:020d}.json"


def text(server, uri):
    """What lies at a URI, or ``None`` if nothing does."""
    options = {**server.options(), "client_options": {"allow_http": True}}
    options.pop("retry_config")
    client = options.pop("client_options")
    store = S3Store(server.bucket, config=options, client_options=client)
    try:
        return bytes(obstore.get(store, uri.split("/", 3)[3]).bytes()).decode()
    except FileNotFoundError:
        return None


def race(drivers, class_name, uri):
    """Let all drivers write one file at once, each its own text; return what became of each."""
    said = [""] * len(drivers)
    barrier = threading.Barrier(len(drivers))

    def write(i):
        barrier.wait()
        said[i] = drivers[i].write(class_name, uri, f"driver {i}")

    threads = [threading.Thread(target=write, args=(i,)) for i in range(len(drivers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def test_deltas_own_log_store_lets_two_drivers_write_one_commit_and_one_is_lost(server, drivers):
    server.let_meet("_delta_log/", 2)
    assert race(drivers(2), DELTAS, commit(server)) == ["written", "written"]
    assert text(server, commit(server)) in ("driver 0\n", "driver 1\n")


@pytest.mark.parametrize("count", [2, 4])
def test_of_drivers_that_race_for_a_commit_one_wins_and_the_others_get_an_error(server, drivers, count):
    crowd = drivers(count)
    for version in range(ROUNDS):
        if version:
            # nobody writes before all are about to
            server.let_meet(f"{version:020d}.json", count)
        said = race(crowd, S3_LOG_STORE, commit(server, version))
        assert sorted(said) == [EXISTS] * (count - 1) + ["written"]
        assert text(server, commit(server, version)) == f"driver {said.index('written')}\n"


@pytest.mark.parametrize("kind", ["reset_after", "status_after"])
def test_a_commit_whose_response_was_lost_is_recognised_as_our_own(server, drivers, kind):
    (driver,) = drivers(1)
    server.fail(kind, "PUT", path=".json", times=1)
    assert driver.write(S3_LOG_STORE, commit(server), "mine") == "written"
    assert text(server, commit(server)) == "mine\n"
    # the request that was told "exists" was the repeated one
    assert server.faults[0].times == 0


@pytest.mark.parametrize("lines", [("mine",), ("theirs",)], ids=["another text", "the same text"])
def test_a_commit_of_another_writer_never_counts_as_our_own(server, drivers, lines):
    one, other = drivers(2)
    assert one.write(S3_LOG_STORE, commit(server), "theirs") == "written"
    server.fail("reset_before", "PUT", path=".json", times=1)
    assert other.write(S3_LOG_STORE, commit(server), *lines) == EXISTS
    assert text(server, commit(server)) == "theirs\n"


def test_a_commit_of_another_log_store_is_respected(server, drivers):
    (driver,) = drivers(1)
    assert driver.write(DELTAS, commit(server), "theirs") == "written"
    assert driver.write(S3_LOG_STORE, commit(server), "mine") == EXISTS
    assert text(server, commit(server)) == "theirs\n"


def test_a_write_with_an_unknown_outcome_is_neither_done_nor_lost(server, drivers):
    (driver,) = drivers(1)
    driver.write(S3_LOG_STORE, commit(server), "first")
    server.fail("status", "PUT", path=".json", status="403 Forbidden")
    assert driver.write(S3_LOG_STORE, commit(server, 1), "mine") == "java.nio.file.AccessDeniedException"
    assert text(server, commit(server, 1)) is None


@pytest.mark.parametrize("size", [10, 6 << 20], ids=["one put", "multipart"])
def test_half_a_commit_is_never_published(server, drivers, size):
    (driver,) = drivers(1, multipart_size="5M")
    # the second action cannot be written
    assert driver.write(S3_LOG_STORE, commit(server), "x" * size, 7) == "java.lang.ClassCastException"
    assert text(server, commit(server)) is None


def test_a_large_commit_is_conditional_too(server, drivers):
    one, other = drivers(2, multipart_size="5M")
    line = "x" * (6 << 20)
    assert one.write(S3_LOG_STORE, commit(server), line, "one") == "written"
    assert other.write(S3_LOG_STORE, commit(server), line, "other") == EXISTS
    assert text(server, commit(server)).endswith("x\none\n")
    assert server.requests["POST"] >= 4


def test_a_store_that_ignores_the_condition_is_detected_before_the_first_commit(server, drivers):
    (driver,) = drivers(1)
    server.forget_conditions()
    said = driver.write(S3_LOG_STORE, commit(server), "mine")
    assert said == "java.lang.UnsupportedOperationException"
    assert "If-None-Match: *" in driver.error
    assert f"s3a://{server.bucket}/sink/_delta_log" in driver.error
    assert text(server, commit(server)) is None


def test_a_file_system_without_conditional_creation_is_refused_by_name(server, drivers, tmp_path):
    (driver,) = drivers(1, create_conditional_enabled="false")
    assert driver.write(S3_LOG_STORE, commit(server), "mine") == "java.lang.UnsupportedOperationException"
    assert "org.apache.hadoop.fs.s3a.S3AFileSystem" in driver.error
    assert "Hadoop 3.4.2 or newer" in driver.error
    assert server.requests["PUT"] == 0
    local = f"file:{tmp_path}/0.json"
    assert driver.write(S3_LOG_STORE, local, "mine") == "java.lang.UnsupportedOperationException"
    assert list(tmp_path.iterdir()) == []


def test_the_store_is_asked_once_and_its_answer_costs_later_drivers_one_request(server, drivers):
    one, other = drivers(2)
    one.write(S3_LOG_STORE, commit(server), "0")
    one.write(S3_LOG_STORE, commit(server, 1), "1")
    # two for the question, two commits
    assert server.requests["PUT"] == 4
    server.requests.clear()
    other.write(S3_LOG_STORE, commit(server, 2), "2")
    assert server.requests["PUT"] == 2


def test_the_rest_is_as_in_deltas_own_log_store(server, drivers):
    (driver,) = drivers(1)
    for version in (0, 2, 1):
        driver.write(S3_LOG_STORE, commit(server, version), f"ü {version}", "second")
    store = driver.store(S3_LOG_STORE)
    path = driver.path(commit(server, 1))
    listed = store.listFrom(path, driver.conf)
    names = []
    while listed.hasNext():
        names.append(listed.next().getPath().getName())
    assert names == [f"{version:020d}.json" for version in (1, 2)]
    read = store.read(path, driver.conf)
    assert [read.next(), read.next(), read.hasNext()] == ["ü 1", "second", False]
    read.close()
    assert store.isPartialWriteVisible(path, driver.conf) is False
    last = commit(server).replace(f"{0:020d}.json", "_last_checkpoint")
    for line in ("1", "2"):
        assert driver.write(S3_LOG_STORE, last, line, overwrite=True) == "written"
        assert text(server, last) == f"{line}\n"
