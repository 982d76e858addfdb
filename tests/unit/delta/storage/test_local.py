from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import AccessDeniedError, RequestRefusedError, StorageError, TornFileError
from tests.storage_contract import each_check


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path / "table"))


@each_check
def test_the_storage_contract(storage, check):
    check(storage)


def test_a_file_where_a_folder_is_expected_counts_as_missing(storage):
    storage.put("a", b"x")
    assert storage.head("a/b") is None
    assert list(storage.list_after("a")) == []
    with pytest.raises(FileNotFoundError):
        storage.get("a/b")


def test_writing_leaves_no_temporary_files_behind(storage, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    storage.put_if_absent("f/a", b"1")
    storage.put_if_absent("f/a", b"2")
    storage.put("f/b", b"3")
    storage.put("f/b", b"4")
    with source.open("rb") as file:
        storage.put_file("f/c", file)
    assert sorted(path.name for path in (storage.root / "f").iterdir()) == ["a", "b", "c"]
    assert storage.get("f/b")[0] == b"4"
    assert storage.get("f/c")[0] == b"abc"


def test_temporary_files_of_a_dead_writer_are_never_listed(storage):
    storage.put("f/a", b"1")
    (storage.root / "f/.b.123.tmp").write_bytes(b"half")
    assert [item.key for item in storage.list_after("f")] == ["f/a"]


def test_the_time_of_a_file_is_whole_milliseconds_rounded_down(storage):
    storage.put("x", b"1")
    os.utime(storage.root / "x", ns=(0, 1_704_067_200_123_999_999))
    assert storage.head("x")[:3] == ("x", 1, 1_704_067_200_123)
    assert storage.get("x")[1] == storage.head("x")


def test_a_file_can_be_streamed_and_read_with_seek(storage):
    storage.put("x", bytes(range(100)))
    assert [len(chunk) for chunk in storage.stream("x", 40)] == [40, 40, 20]
    with storage.open("x") as file:
        file.seek(90)
        assert file.read() == bytes(range(90, 100))


def test_a_file_that_grows_while_it_is_read_is_torn(storage, monkeypatch):
    storage.put("x", b"12345")
    real = os.read

    def read_and_grow(descriptor, size):
        with (storage.root / "x").open("ab") as file:
            file.write(b"6")
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", read_and_grow)
    with pytest.raises(TornFileError, match=r"file:///.*/x changed while it was read"):
        storage.get("x")


@pytest.mark.parametrize(("verb", "call"), [("reading", "get"), ("looking at", "head")])
def test_a_refusal_by_the_file_system_is_access_denied_and_not_absence(storage, monkeypatch, verb, call):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, {"get": "open", "head": "lstat"}[call], refuse)
    with pytest.raises(AccessDeniedError, match=rf"{verb} file:///.*/f/x: Permission denied; give the user"):
        getattr(storage, call)("f/x")


def test_a_file_system_without_hard_links_is_an_error(storage, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=r"not support hard links.*Use another file system"):
        storage.put_if_absent("f/x", b"1")
    assert list((storage.root / "f").iterdir()) == []


@pytest.mark.parametrize("call", ["put", "put_if_absent"])
def test_a_folder_that_cannot_be_made_is_an_error_and_not_absence(call):
    storage = LocalStorage("/proc/no-such-folder")
    with pytest.raises(StorageError, match="writing file:///proc/no-such-folder/a/b"):
        getattr(storage, call)("a/b", b"")


def test_an_error_of_the_disk_names_the_file_and_the_cause(storage):
    storage.put("f/x", b"1")
    with pytest.raises(StorageError, match=r"reading file:///.*/table/f: Is a directory"):
        storage.get("f")


def test_a_hidden_folder_is_not_listed(storage):
    for key in ("f/a/x", "f/.hidden/z"):
        storage.put(key, b"1")
    assert storage.list_folders("f") == ["a"]


WRITER_THAT_DIES = """
import os, sys
from airflow_provider_fds.delta.storage.local import LocalStorage
os.link = lambda *_: os._exit(7)
LocalStorage(sys.argv[1]).put_if_absent("f/x", b"1")
"""


def test_only_old_temporary_files_of_its_own_are_removed_as_unfinished(tmp_path):
    storage = LocalStorage(str(tmp_path))
    died = subprocess.run([sys.executable, "-c", WRITER_THAT_DIES, str(tmp_path)], check=False, timeout=60)
    assert died.returncode == 7
    (left,) = (tmp_path / "f").iterdir()
    (tmp_path / "f" / ".x.crc").touch()  # Hadoop's
    written_ms = left.stat().st_mtime_ns // 1_000_000
    storage.remove_unfinished("f", written_ms - 1)
    assert left.exists()
    storage.remove_unfinished("f", written_ms + 1)
    storage.remove_unfinished("none", written_ms + 1)
    assert [path.name for path in (tmp_path / "f").iterdir()] == [".x.crc"]


def test_a_file_system_that_is_read_only_is_not_retried(tmp_path, monkeypatch):
    def read_only(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.link", read_only)
    with pytest.raises(AccessDeniedError, match="Read-only file system"):
        LocalStorage(str(tmp_path)).put_if_absent("x", b"1")


@pytest.mark.parametrize("key", ["x", "log/x", "a/b/x"])
@pytest.mark.parametrize("write", [LocalStorage.put_if_absent, LocalStorage.put])
def test_a_file_where_a_folder_is_needed_is_named_and_not_retried(tmp_path, key, write):
    (tmp_path / "staging").write_bytes(b"a file")
    with pytest.raises(RequestRefusedError, match=r"staging is a file, but FDS needs a folder there") as caught:
        write(LocalStorage(str(tmp_path / "staging")), key, b"1")
    assert not caught.value.retryable


def test_a_file_system_without_hard_links_is_not_retried(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(RequestRefusedError, match="hard links"):
        LocalStorage(str(tmp_path)).put_if_absent("x", b"1")


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    (folder / "deep").mkdir(parents=True)
    (folder / "secret").write_bytes(b"not ours")
    return folder


OUTSIDE = ["../elsewhere", "a/../../elsewhere", "link", "a/link"]


@pytest.mark.parametrize("folder", OUTSIDE)
def test_no_key_leads_out_of_the_folder(storage, elsewhere, tmp_path, folder):
    storage.put("a/b", b"x")
    for link in (storage.root / "link", storage.root / "a" / "link"):
        link.symlink_to(elsewhere)
    for touch in (
        lambda: storage.head(f"{folder}/secret"),
        lambda: storage.get(f"{folder}/secret"),
        lambda: storage.open(f"{folder}/secret"),
        lambda: next(storage.stream(f"{folder}/secret")),
        lambda: list(storage.list_after(folder)),
        lambda: storage.list_folders(folder),
        lambda: storage.put_if_absent(f"{folder}/new", b"x"),
        lambda: storage.put(f"{folder}/secret", b"x"),
        lambda: storage.delete(f"{folder}/secret"),
        lambda: storage.delete_folder(f"{folder}/deep"),
        lambda: storage.remove_unfinished(folder, 2**60),
    ):
        with pytest.raises(AccessDeniedError, match="is outside file://"):
            touch()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["deep", "secret"]
    assert (elsewhere / "secret").read_bytes() == b"not ours"


def test_a_file_that_is_a_link_to_the_outside_is_neither_read_nor_written(storage, elsewhere):
    storage.root.mkdir()
    (storage.root / "n").symlink_to(elsewhere / "secret")
    with pytest.raises(AccessDeniedError, match="symbolic link"):
        storage.get("n")
    with pytest.raises(AccessDeniedError, match="symbolic link"):
        list(storage.list_after(""))
    with pytest.raises(AccessDeniedError, match="symbolic link"):
        storage.put("n", b"x")
    storage.delete("n")
    assert (elsewhere / "secret").read_bytes() == b"not ours"


def test_a_folder_that_is_or_is_below_a_symbolic_link_is_used_like_any_other(elsewhere, tmp_path):
    (tmp_path / "table").symlink_to(elsewhere)
    for path in ("table", "table/deep"):
        storage = LocalStorage(str(tmp_path / path))
        storage.put("f/a", b"1")
        (storage.root / "f" / "same").symlink_to(storage.root / "f" / "a")
        assert storage.get("f/same")[0] == b"1"
        assert [meta.key for meta in storage.list_after("f")] == ["f/a", "f/same"]
        storage.delete_folder("f")
        assert storage.list_folders("") == (["deep"] if path == "table" else [])


def test_a_file_of_other_content_has_another_tag_although_size_and_time_are_equal(storage):
    storage.put("x", b"1")
    before = storage.head("x")
    storage.put("x", b"2")
    os.utime(storage.root / "x", ns=(0, before.modified_ms * 1_000_000))
    after = storage.head("x")
    assert (after.size_bytes, after.modified_ms) == (before.size_bytes, before.modified_ms)
    assert after.etag != before.etag
