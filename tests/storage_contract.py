"""The contract of every storage: one list of checks, run on a disk, an object store and HDFS.

Each check gets a storage whose folder is empty or does not exist yet.
"""

from __future__ import annotations

import asyncio
import io
import threading
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.storage.storage import Storage

_WRITERS: Final = 8


def what_is_missing_is_none_or_empty_or_file_not_found(storage: Storage) -> None:
    assert storage.head("a/b") is None
    assert asyncio.run(storage.head_async("a/b")) is None
    assert list(storage.list_after("a")) == storage.list_folders("a") == []
    storage.delete("a/b")
    storage.delete_folder("a")
    storage.remove_unfinished("a", 1 << 60)
    for read in (storage.get, storage.open, lambda key: next(storage.stream(key))):
        with pytest.raises(FileNotFoundError):
            read("a/b")


def files_are_written_read_and_deleted(storage: Storage) -> None:
    content = bytes(range(100))
    storage.put_file("f/c", io.BytesIO(content))
    storage.put("f/b", b"1")
    storage.put("f/b", b"22")
    storage.put("f/empty", b"")
    assert storage.get("f/b")[0] == b"22"
    assert storage.get("f/empty")[0] == b""
    assert b"".join(storage.stream("f/c", 40)) == content
    with storage.open("f/c") as file:
        assert file.seekable()
        assert file.seek(-10, 2) == 90
        assert file.read() == content[90:]
        assert file.tell() == 100
    storage.delete("f/c")
    assert storage.head("f/c") is None
    assert storage.get("f/b")[0] == b"22"


def the_async_head_answers_like_the_other(storage: Storage) -> None:
    storage.put("f/c", b"123")
    found = storage.head("f/c")
    assert found is not None
    assert (found.key, found.size_bytes) == ("f/c", 3)
    assert asyncio.run(storage.head_async("f/c")) == found
    assert storage.head("f") is asyncio.run(storage.head_async("f")) is None, "a folder is not an object"


def a_folder_is_listed_without_its_sub_folders(storage: Storage) -> None:
    for key, content in (("f/b", b"22"), ("f/c", b"333"), ("f/sub/x", b"1"), ("g", b"")):
        storage.put(key, content)
    assert [(item.key, item.size_bytes) for item in storage.list_after("f")] == [("f/b", 2), ("f/c", 3)]
    assert [item.key for item in storage.list_after("f", "b")] == ["f/c"]
    assert [item.key for item in storage.list_after("")] == ["g"]
    assert list(storage.list_after("f/b")) == [], "a file has no content to list"


def names_are_listed_in_the_order_of_their_utf_8_bytes(storage: Storage) -> None:
    names = ["z", "Z", "é", "10", "9", "a b", "100%", "a%20b", "\U0001f600", "\uffee"]
    for name in names:
        storage.put(f"f/{name}", name.encode())
    listed = [item.key for item in storage.list_after("f")]
    assert listed == sorted((f"f/{name}" for name in names), key=str.encode)
    assert [f"f/{storage.get(key)[0].decode()}" for key in listed] == listed
    assert [item.key for item in storage.list_after("f", "a b")] == listed[listed.index("f/a b") + 1 :]


def folders_are_listed_and_removed_whole(storage: Storage) -> None:
    for key in ("f/b/x", "f/a/deep/y", "f/a%b é/z", "f/file", "f/ab/x"):
        storage.put(key, b"1")
    assert storage.list_folders("") == ["f"]
    assert storage.list_folders("f") == ["a", "a%b é", "ab", "b"]
    assert storage.list_folders("f/b") == storage.list_folders("none") == storage.list_folders("f/file") == []
    for folder in ("f/a", "f/a", "f/a%b é"):
        storage.delete_folder(folder)
    storage.remove_unfinished("f", 0)
    assert storage.list_folders("f") == ["ab", "b"]
    assert storage.get("f/b/x")[0] == storage.get("f/file")[0] == b"1"


def the_folder_beside_is_reached_by_its_uri(storage: Storage) -> None:
    storage.put("f/c", b"1")
    beside = storage.beside(f"{storage.uri}/f")
    assert beside is not None
    assert beside.get("c")[0] == b"1"


def only_the_first_conditional_write_succeeds(storage: Storage) -> None:
    assert storage.put_if_absent("ledger/0.json", b"first")
    assert not storage.put_if_absent("ledger/0.json", b"second" * (2 << 20))
    assert storage.get("ledger/0.json")[0] == b"first"
    assert [item.key for item in storage.list_after("ledger")] == ["ledger/0.json"]


def one_of_many_concurrent_writers_succeeds(storage: Storage) -> None:
    together = threading.Barrier(_WRITERS)
    winners: list[bytes] = []

    def write(content: bytes) -> None:
        together.wait()
        if storage.put_if_absent("n", content):
            winners.append(content)

    threads = [threading.Thread(target=write, args=(str(number).encode(),)) for number in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [storage.get("n")[0]] == winners


def a_tag_changes_with_the_content(storage: Storage) -> None:
    storage.put("x", b"1")
    (listed,) = storage.list_after("")
    found = storage.head("x")
    assert found is not None
    assert listed.etag == found.etag == storage.get("x")[1].etag
    storage.put("x", b"2")
    (changed,) = storage.list_after("")
    assert (changed.etag is None) if listed.etag is None else (changed.etag not in (None, listed.etag))


_CHECKS: Final[tuple[Callable[[Storage], None], ...]] = (
    what_is_missing_is_none_or_empty_or_file_not_found,
    files_are_written_read_and_deleted,
    the_async_head_answers_like_the_other,
    a_folder_is_listed_without_its_sub_folders,
    names_are_listed_in_the_order_of_their_utf_8_bytes,
    folders_are_listed_and_removed_whole,
    the_folder_beside_is_reached_by_its_uri,
    only_the_first_conditional_write_succeeds,
    one_of_many_concurrent_writers_succeeds,
    a_tag_changes_with_the_content,
)

#: Gives a test one check after the other, as its argument ``check``.
each_check = pytest.mark.parametrize("check", _CHECKS, ids=lambda check: check.__name__)

__all__ = ["each_check"]
