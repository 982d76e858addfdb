"""The object store backend against a real S3 server (moto) on the loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from airflow_provider_fds.delta.paths import absolute_path
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.object_store import ObjectStorage
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import (
    AccessDeniedError,
    LogGapError,
    LogRewoundError,
    LogTruncatedError,
    StorageError,
    TableNotFoundError,
    TornFileError,
)
from tests.compose import command
from tests.storage_contract import each_check


@pytest.fixture
def storage(server):
    return open_storage(f"s3://{server.bucket}/a%20b/t", server.options())


@pytest.fixture
def table(server, storage, log_builder):
    """A log of six versions, copied to the object store."""
    log_builder.create()
    for _ in range(5):
        log_builder.append(2)
    for path in log_builder.log.iterdir():
        storage.put(f"_delta_log/{path.name}", path.read_bytes())
    server.requests.clear()
    return storage


@each_check
def test_the_storage_contract(storage, check):
    check(storage)


def test_folders_are_listed_in_one_request(server, storage):
    for key in ("f/b/x", "f/a/deep/y", "f/file"):
        storage.put(key, b"1")
    server.requests.clear()
    assert storage.list_folders("f") == ["a", "b"]
    assert server.requests == {"LIST": 1}


def test_an_object_has_a_tag(storage):
    storage.put("x", b"1")
    assert storage.head("x").etag is not None


def test_a_logged_path_decoded_once_is_the_key_and_undecoded_is_not(storage):
    storage.put("p=x%20y é/f", b"1")
    assert storage.head("p=x%20y é/f") is not None
    assert storage.head("p=x%2520y%20%C3%A9/f") is None
    assert [item.key for item in storage.list_after("p=x%20y é")] == ["p=x%20y é/f"]
    assert absolute_path(storage.uri, "p=x%2520y%20%C3%A9/f").endswith("/a%20b/t/p=x%2520y%20%C3%A9/f")


# what a poll and a plan cost


async def test_a_poll_is_exactly_one_head(server, table):
    log = DeltaLog(table)
    assert await log.probe_async(5)
    assert server.requests == {"HEAD": 1}
    assert not await log.probe_async(6)
    assert server.requests == {"HEAD": 2}


def test_the_check_of_a_position_is_one_list(server, table):
    log = DeltaLog(table)
    assert log.verify_position(6) == 5
    assert server.requests == {"LIST": 1}


def test_commits_cost_one_list_and_one_get_each(server, table):
    log = DeltaLog(table)
    assert [commit.version for commit in log.commits(1, 4)] == [1, 2, 3, 4]
    assert server.requests == {"LIST": 1, "GET": 4}
    server.requests.clear()
    assert log.commit(2).version == 2
    assert server.requests == {"HEAD": 1, "GET": 1}


def test_a_full_subfolder_is_skipped_in_one_request(server):
    store = MemoryStore()
    storage = ObjectStorage(store, "s3://m/t", "t")
    for i in range(3500):
        storage.put(f"f/m/{i:05d}", b"")
    for name in ("a", "z"):
        storage.put(f"f/{name}", b"")
    assert [item.key for item in storage.list_after("f")] == ["f/a", "f/z"]


# what is wrong


def test_the_same_errors_come_as_from_a_disk(server, table):
    log = DeltaLog(table)
    table.delete("_delta_log/00000000000000000003.json")
    with pytest.raises(LogGapError):
        log.verify_position(2)
    with pytest.raises(LogRewoundError):
        log.commit(9)
    for version in (0, 1, 2):
        table.delete(f"_delta_log/{version:020d}.json")
    with pytest.raises(LogTruncatedError):
        log.verify_position(2)
    table.put("_delta_log/00000000000000000004.json", b'{"add"')
    with pytest.raises(TornFileError, match="version 4 of s3://"):
        list(log.commits(4, 5))


def test_a_misspelt_path_is_an_error_and_not_an_empty_table(server):
    log = DeltaLog(open_storage(f"s3://{server.bucket}/nope", server.options()))
    for call in (log.latest, lambda: log.verify_position(3)):
        with pytest.raises(TableNotFoundError, match=r"no Delta table at s3://.*/nope: nothing exists there"):
            call()


def test_a_missing_bucket_is_not_an_empty_table(server):
    storage = open_storage("s3://no-such-bucket/t", server.options())
    for call in (DeltaLog(storage).latest, lambda: storage.put("x", b""), lambda: storage.put_if_absent("x", b"")):
        with pytest.raises(StorageError, match=r"no-such-bucket.*NoSuchBucket"):
            call()


@pytest.mark.parametrize("status", ["403 Forbidden", "401 Unauthorized"])
async def test_a_refused_request_is_access_denied_and_never_absence(server, table, status):
    server.fail("status", status=status)
    for call in (
        lambda: table.head("x"),
        lambda: table.get("x"),
        lambda: list(table.list_after("_delta_log")),
        lambda: table.put_if_absent("x", b""),
        lambda: next(table.stream("x")),
        lambda: table.open("x"),
    ):
        with pytest.raises(AccessDeniedError, match=r"s3://.*Check the credentials") as caught:
            call()
        assert not caught.value.retryable
        assert "test-secret" not in str(caught.value)
    with pytest.raises(AccessDeniedError):
        await DeltaLog(table).probe_async(6)


def test_a_server_that_fails_is_a_storage_error_with_uri_and_cause(server, table):
    server.fail("status", "HEAD", status="500 Oops")
    server.fail("status", "LIST", status="503 Slow Down")
    with pytest.raises(StorageError, match=r"looking at s3://.*/a%20b/t/x: .*500") as caught:
        table.head("x")
    assert caught.value.retryable
    with pytest.raises(StorageError, match=r"listing s3://.*/_delta_log"):
        list(table.list_after("_delta_log"))


def test_an_unreachable_server_is_a_storage_error():
    options = {
        "endpoint": "http://127.0.0.1:9",
        "region": "x",
        "skip_signature": True,
        "retry_config": {"max_retries": 0},
    }
    with pytest.raises(StorageError, match=r"looking at s3://b/t/x"):
        open_storage("s3://b/t", options).head("x")


def test_a_store_that_does_not_list_in_order_is_sorted_or_refused():
    class Shuffled(ObjectStorage):
        def _list(self, path, offset):
            pages = list(super()._list(path, offset))
            return iter([list(reversed(page)) for page in reversed(pages)])

    for is_ordered in (True, False):
        storage = Shuffled(MemoryStore(), "s3://m--x-s3/t", "t", is_ordered=is_ordered)
        for name in "abc":
            storage.put(f"f/{name}", b"")
        if is_ordered:
            with pytest.raises(StorageError, match=r"lists 'f/b' after 'f/c': expected names in ascending order"):
                list(storage.list_after("f"))
        else:
            assert [item.key for item in storage.list_after("f")] == ["f/a", "f/b", "f/c"]


FORKED = """
import os, sys
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import StorageError
storage = open_storage("s3://{bucket}/t", {options!r})
if {used_before}:
    storage.head("x")
pid = os.fork()
if pid == 0:
    try:
        print("child", storage.head("x"), flush=True)
    except StorageError as error:
        print("refused", error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("parent", storage.head("x"), flush=True)
"""


@pytest.mark.parametrize(("used_before", "said"), [(True, "refused"), (False, "child None")])
def test_a_forked_process_gets_an_error_instead_of_hanging(server, used_before, said):
    script = FORKED.format(bucket=server.bucket, options=server.options(), used_before=used_before)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert said in result.stdout
    assert "parent None" in result.stdout
    if used_before:
        assert "was forked from process" in result.stdout


@pytest.fixture
def composed_store():
    """Address of the store of `docker/compose.yaml`, run as a process of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = command("store", {"0.0.0.0": "127.0.0.1", "5000": str(port)})
    process = subprocess.Popen([str(Path(sys.executable).parent / words[0]), *words[1:]], stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        pause = threading.Event()
        for _ in range(600):
            assert process.poll() is None
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/lake", method="PUT"), timeout=60).close()
            except urllib.error.URLError:
                pause.wait(0.1)
            else:
                break
        yield address
    finally:
        process.terminate()
        process.wait()


def test_the_store_of_the_compose_file_writes_a_file_only_once(composed_store, server):
    storage = open_storage("s3://lake/t", {**server.options(), "endpoint": composed_store})
    assert storage.put_if_absent("a", b"1") is True
    assert storage.put_if_absent("a", b"2") is False
    assert storage.get("a")[0] == b"1"
