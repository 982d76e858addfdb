"""Table, staging and sink on a real HDFS: what the storage promises, and rows that are loaded once."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage import hdfs
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, RequestRefusedError, StorageError
from tests.interop.hdfs_cluster import HdfsCluster
from tests.storage_contract import each_check


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with HdfsCluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture
def storage(cluster, request):
    return open_storage(f"{cluster.uri}/a b é%25/{quote(request.node.name)}")


@pytest.fixture
def closed_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@each_check
def test_the_storage_contract(storage, check):
    check(storage)


def test_the_losers_of_a_race_leave_no_temporary_file(storage):
    assert storage.put_if_absent("only", b"1")
    assert not storage.put_if_absent("only", b"2")
    assert [status.path.rpartition("/")[2] for status in hdfs._wait(storage._listed(""))] == ["only"]


def test_a_folder_of_another_file_system_is_not_beside(storage):
    assert storage.beside("hdfs://elsewhere:8020/a") is None


def test_unfinished_writes_are_hidden_and_removed(storage):
    storage.put("f/done", b"1")
    temporary = storage._temporary_beside("f/half")
    storage.put(temporary, b"x")
    assert [item.key for item in storage.list_after("f")] == ["f/done"]
    written = storage.head(temporary).modified_ms
    storage.remove_unfinished("f", written)
    assert storage.head(temporary) is not None
    storage.remove_unfinished("f", written + 1)
    assert storage.head(temporary) is None
    assert storage.head("f/done") is not None


def test_no_key_leads_out_of_the_folder(storage):
    for key in ("../a", "a/../../b", "/a"):
        with pytest.raises(AccessDeniedError, match="is outside"):
            storage.get(key)


def test_a_stopped_namenode_is_a_retryable_error(closed_port):
    with pytest.raises(StorageError, match=r"reading hdfs://127.0.0.1:.*/t/x: .*refused") as caught:
        open_storage(f"hdfs://127.0.0.1:{closed_port}/t").get("x")
    assert caught.value.retryable


def test_a_silent_namenode_times_out(monkeypatch):
    monkeypatch.setattr(hdfs, "ANSWER_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        storage = open_storage(f"hdfs://127.0.0.1:{silent.getsockname()[1]}/t")
        for look in (storage.head, lambda key: asyncio.run(storage.head_async(key))):
            with pytest.raises(StorageError, match=r"no answer within 0.3 seconds"):
                look("x")


def test_an_unknown_name_service_is_named():
    with pytest.raises((ConfigurationError, RequestRefusedError), match=r"hdfs-site\.xml"):
        open_storage("hdfs://lake/t").head("x")


def test_a_user_without_rights_is_refused_by_name(storage, cluster):
    storage.put("private/x", b"1")
    hdfs._wait(storage._client.set_permission(storage._inside("private"), 0o700))
    program = (
        "from airflow_provider_fds.delta.storage.open import open_storage\n"
        f"storage = open_storage({storage.uri!r})\n"
        "for look in (storage.get, storage.delete, lambda key: storage.put(key, b'2')):\n"
        "    try: look('private/x')\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    env = {**os.environ, "HADOOP_USER_NAME": "stranger"}
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("AccessDeniedError")
        assert "Permission denied: user=stranger" in line
        assert "HADOOP_USER_NAME" in line
    assert storage.get("private/x")[0] == b"1"


ENDS_AT_ONCE = """
import sys, time
from asyncio.selector_events import BaseSelectorEventLoop
from airflow_provider_fds.delta.storage.open import open_storage
wake = BaseSelectorEventLoop._write_to_self
def slow(loop):
    wake(loop)
    time.sleep(0.2)
BaseSelectorEventLoop._write_to_self = slow
print(open_storage(sys.argv[1]).head("x"))
"""


def test_a_process_may_end_right_after_an_answer(storage):
    ran = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE, storage.uri], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "None\n", "")


def upload(table: Path, storage) -> None:
    for path in sorted(table.rglob("*")):
        if path.is_file() and storage.head(key := str(path.relative_to(table))) is None:
            with path.open("rb") as file:
                storage.put_file(key, file)


def download(storage, folder: Path, under: str = "") -> None:
    for item in storage.list_after(under):
        (folder / item.key).parent.mkdir(parents=True, exist_ok=True)
        (folder / item.key).write_bytes(storage.get(item.key)[0])
    for name in storage.list_folders(under):
        download(storage, folder, f"{under}/{name}".lstrip("/"))


def test_rows_are_loaded_once_with_everything_on_hdfs(cluster, tmp_path):
    source = open_storage(f"{cluster.uri}/lake/orders")
    sink = open_storage(f"{cluster.uri}/lake/bronze")
    command = [
        *(str(Path(sys.executable).with_name("fds")), "run", source.uri, "--stream", "orders", "--sink", sink.uri),
        *("--staging", f"{cluster.uri}/fds", "--checkpoint", str(tmp_path / "checkpoint.json")),
        *("--master", "local[1]", "--option", "startingVersion=0"),
    ]
    for first in (0, 10):
        deltalake.write_deltalake(tmp_path / "orders", pa.table({"id": list(range(first, first + 10))}), mode="append")
        upload(tmp_path / "orders", source)
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    download(sink, tmp_path / "bronze")
    ids = deltalake.DeltaTable(tmp_path / "bronze").to_pyarrow_table()["id"].to_pylist()
    assert sorted(ids) == list(range(20))
    assert DeltaLog(sink).latest() >= 1
