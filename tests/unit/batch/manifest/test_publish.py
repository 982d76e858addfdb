"""A manifest is written once, checksum first, and never overwritten."""

from __future__ import annotations

import io
from typing import IO

import pytest

from airflow_provider_fds.batch.manifest import publish
from airflow_provider_fds.batch.manifest.manifest import Manifest
from airflow_provider_fds.batch.manifest.publish import manifest_folder, write_manifest
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import LedgerError, StorageError
from tests.manifests import commit_json

MANIFEST = Manifest(commit=io.BytesIO(b'{"protocol":{}}\n'), checksum_json=b"{}", digest="d" * 32)
COMMIT = "_delta_log/00000000000000000000.json"
CHECKSUM = "_delta_log/00000000000000000000.crc"


@pytest.fixture(params=["small", "large"], autouse=True)
def _size(request, monkeypatch):
    """As if the commit took more than one request to be written."""
    if request.param == "large":
        monkeypatch.setattr(publish, "_ONE_REQUEST_BYTES", len(MANIFEST.checksum_json))


class S3Named(LocalStorage):
    """Files on local disk under a name of S3: only the URI matters here."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.uri = "s3://staging/x"


def test_the_folder_is_named_by_epoch_batch_and_digest():
    assert manifest_folder(2, 17, "abc") == "manifests/2/17-abc"


def test_both_files_are_written_and_the_path_returned_that_spark_loads(tmp_path):
    storage = LocalStorage(str(tmp_path))

    path = write_manifest(MANIFEST, storage, "a b%é#/manifests/1/0-x")

    # not encoded: Spark decodes nothing in a path that a user gives it
    assert path == f"file://{tmp_path}/a b%é#/manifests/1/0-x"
    folder = tmp_path / "a b%é#" / "manifests" / "1" / "0-x"
    assert (folder / COMMIT).read_bytes() == commit_json(MANIFEST)
    assert (folder / CHECKSUM).read_bytes() == MANIFEST.checksum_json
    assert len([p for p in folder.rglob("*") if p.is_file()]) == 2


def test_the_uri_has_the_scheme_spark_loads(tmp_path):
    assert write_manifest(MANIFEST, S3Named(str(tmp_path)), "m") == "s3a://staging/x/m"


def test_the_same_manifest_twice_is_fine(tmp_path):
    storage = LocalStorage(str(tmp_path))

    assert write_manifest(MANIFEST, storage, "m") == write_manifest(MANIFEST, storage, "m")


def test_an_attempt_that_died_between_the_two_files_is_completed(tmp_path):
    storage = LocalStorage(str(tmp_path))
    storage.put_if_absent(f"m/{CHECKSUM}", MANIFEST.checksum_json)

    write_manifest(MANIFEST, storage, "m")

    assert (tmp_path / "m" / COMMIT).read_bytes() == commit_json(MANIFEST)


@pytest.mark.parametrize("other", [b"other", b"", *(commit_json(MANIFEST) + more for more in (b" ", b"x" * 99))])
@pytest.mark.parametrize("name", [COMMIT, CHECKSUM])
def test_other_bytes_at_the_name_are_an_error_and_stay(tmp_path, name, other):
    storage = LocalStorage(str(tmp_path))
    storage.put_if_absent(f"m/{name}", other)

    with pytest.raises(LedgerError, match=r"its content differs from .*never overwritten"):
        write_manifest(MANIFEST, storage, "m")

    assert (tmp_path / "m" / name).read_bytes() == other
    assert not (tmp_path / "m" / COMMIT).exists() or name == COMMIT


def test_the_commit_is_written_last(tmp_path):
    class Recording(LocalStorage):
        keys: tuple[str, ...] = ()

        def put_if_absent(self, key: str, data: bytes) -> bool:
            self.keys = (*self.keys, key)
            return super().put_if_absent(key, data)

        def put_file(self, key: str, file: IO[bytes]) -> None:
            self.keys = (*self.keys, key)
            super().put_file(key, file)

    storage = Recording(str(tmp_path))
    write_manifest(MANIFEST, storage, "m")

    assert storage.keys == (f"m/{CHECKSUM}", f"m/{COMMIT}")


def test_a_write_that_lost_its_answer_is_repeated_and_whole(tmp_path, monkeypatch):
    class Losing(LocalStorage):
        lost = 2

        def put_if_absent(self, key: str, data: bytes) -> bool:
            return super().put_if_absent(key, data) and self._answer()

        def put_file(self, key: str, file: IO[bytes]) -> None:
            super().put_file(key, file)
            self._answer()

        def _answer(self) -> bool:
            self.lost -= 1
            if self.lost >= 0:
                raise StorageError("no answer")
            return True

    monkeypatch.setattr(publish, "pause_seconds", lambda _: 0)
    storage = Losing(str(tmp_path))
    write_manifest(MANIFEST, storage, "m")

    assert storage.lost == 0
    assert storage.get(f"m/{COMMIT}")[0] == commit_json(MANIFEST)
