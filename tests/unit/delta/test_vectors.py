"""Deletion vectors as bitmaps: inline, in files, and damaged."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from airflow_provider_fds.delta.actions import DeletionVector
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.vectors import VectorReader, inline_vector, parse_bitmap, serialize_bitmap
from airflow_provider_fds.z85 import decode_z85, encode_z85

if TYPE_CHECKING:
    from pathlib import Path

#: What a table's rows are numbered with: mostly small, some beyond 32 bits.
ROWS = st.sets(st.one_of(st.integers(0, 200), st.integers(2**32 - 5, 2**32 + 200_000)), max_size=60)
UUID_NAME = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def write(folder: Path, *bitmaps: BitMap64, prefix: str = "") -> list[DeletionVector]:
    """Write a file of vectors as Delta does; return the vectors, relative to ``folder``."""
    content, vectors = b"\x01", []
    for rows in bitmaps:
        data = serialize_bitmap(rows)
        name = f"{prefix}{encode_z85(UUID_NAME.bytes)}"
        vectors.append(DeletionVector("u", name, offset=len(content), sizeInBytes=len(data), cardinality=len(rows)))
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    path = folder / prefix / f"deletion_vector_{UUID_NAME}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return vectors


def test_a_vector_is_read_as_logged():
    """The rows of the protocol's example; its text there is of an older format (magic number 1681511376)."""
    example = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    rows = VectorReader(LocalStorage("/t")).rows(DeletionVector("i", example, sizeInBytes=44, cardinality=6))
    assert list(rows) == [3, 4, 7, 11, 18, 29]


@given(ROWS)
def test_what_is_written_inline_is_read_again(rows):
    vector = inline_vector(BitMap64(rows))
    assert set(VectorReader(LocalStorage("/t")).rows(vector)) == rows
    assert (vector.storageType, vector.cardinality) == ("i", len(rows))
    assert parse_bitmap(serialize_bitmap(BitMap64(rows))) == BitMap64(rows)


@given(st.binary(max_size=40))
def test_z85_returns_its_input_padded_to_whole_groups(data):
    found = decode_z85(encode_z85(data))
    assert found[: len(data)] == data
    assert len(found) % 4 == 0
    assert not any(found[len(data) :])


def test_z85_is_encoded_as_its_specification_says():
    assert encode_z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"


@pytest.mark.parametrize("prefix", ["", "ab"])
def test_each_vector_of_a_file_is_found_at_its_offset(tmp_path, prefix):
    first, second = write(tmp_path, BitMap64([1, 5]), BitMap64(range(100_000)), prefix=prefix)
    reader = VectorReader(LocalStorage(str(tmp_path)))
    assert list(reader.rows(first)) == [1, 5]
    assert len(reader.rows(second)) == 100_000
    assert not reader.rows(None)


def test_a_vector_elsewhere_is_read_from_the_same_disk(tmp_path):
    (vector,) = write(tmp_path / "origin é", BitMap64([7]))
    origin = LocalStorage(str(tmp_path / "origin é"))
    reader = VectorReader(LocalStorage(str(tmp_path / "clone")))

    def absolute(root: str) -> DeletionVector:
        path = f"{root}/deletion_vector_{UUID_NAME}.bin"
        return DeletionVector("p", path, offset=1, sizeInBytes=vector.sizeInBytes, cardinality=1)

    assert list(reader.rows(absolute(origin.uri))) == [7]
    assert list(reader.rows(absolute(origin.uri.replace("file://", "file:")))) == [7]
    with pytest.raises(ValueError, match=r"at s3://other/t/deletion_vector.*, outside the table"):
        reader.rows(absolute("s3://other/t"))


def test_a_vector_elsewhere_is_read_from_the_same_bucket(tmp_path):
    from obstore.store import MemoryStore

    from airflow_provider_fds.delta.storage.object_store import ObjectStorage

    (vector,) = write(tmp_path, BitMap64([7]))
    store = MemoryStore()
    name = f"deletion_vector_{UUID_NAME}.bin"
    ObjectStorage(store, "s3://lake/a%20b", "a b").put(name, (tmp_path / name).read_bytes())
    reader = VectorReader(ObjectStorage(store, "s3a://lake/clone", "clone"))

    def absolute(root: str) -> DeletionVector:
        return DeletionVector("p", f"{root}/{name}", offset=1, sizeInBytes=vector.sizeInBytes, cardinality=1)

    assert list(reader.rows(absolute("s3://lake/a%20b"))) == [7]
    with pytest.raises(FileNotFoundError):
        reader.rows(absolute("s3://lake/other"))
    with pytest.raises(ValueError, match="outside the table"):
        reader.rows(absolute("s3://other/a%20b"))


def test_a_vector_whose_file_is_gone_is_not_found(tmp_path):
    (vector,) = write(tmp_path, BitMap64([1]))
    (tmp_path / f"deletion_vector_{UUID_NAME}.bin").unlink()
    with pytest.raises(FileNotFoundError):
        VectorReader(LocalStorage(str(tmp_path))).rows(vector)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: b"\x02" + data[1:], "format 02, expected 01"),
        (lambda data: data[:-6], "too few for a vector of .* bytes at 1"),
        (lambda data: data[:20] + b"\x55" + data[21:], "checksum"),
        (lambda data: b"", "format nothing"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(tmp_path, damage, why):
    (vector,) = write(tmp_path, BitMap64([1, 5, 9]))
    path = tmp_path / f"deletion_vector_{UUID_NAME}.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=why):
        VectorReader(LocalStorage(str(tmp_path))).rows(vector)


def test_a_bitmap_that_is_invalid_or_has_other_rows_than_the_log_says_is_refused():
    with pytest.raises(ValueError, match="magic number"):
        parse_bitmap(b"\x00\x00\x00\x00rest")
    vector = inline_vector(BitMap64([1, 2]))
    other = DeletionVector("i", vector.pathOrInlineDv, sizeInBytes=vector.sizeInBytes, cardinality=3)
    with pytest.raises(ValueError, match="has 2 rows, but the log says 3"):
        VectorReader(LocalStorage("/t")).rows(other)
