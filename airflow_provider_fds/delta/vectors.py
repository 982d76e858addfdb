"""The rows that a deletion vector names (Delta protocol, "Deletion Vector Format" and "… File Storage Format").

Row numbers count the rows of the Parquet file from 0, including deleted ones.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyroaring import BitMap64

from airflow_provider_fds.delta.actions import DeletionVector
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.paths import absolute_vector
from airflow_provider_fds.z85 import decode_z85, encode_z85

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage

#: Precedes a bitmap in the portable 64-bit format of the Roaring specification.
_MAGIC: Final = 1681511377
#: The only version of the file format.
_FILE_VERSION: Final = 1
_SIZE_BYTES: Final = 4
#: Number of vector files kept in memory: a commit writes all its vectors into a few files of about 2 MB.
_FILES_KEPT: Final = 8
#: Vector files are held whole. A larger file is invalid: a bitmap of this size would name billions of rows.
_MAX_FILE_BYTES: Final = 256 << 20


def parse_bitmap(data: bytes) -> BitMap64:
    """Return the rows in a serialised vector. Raises ``ValueError`` if it is invalid."""
    if len(data) < _SIZE_BYTES or struct.unpack_from("<i", data)[0] != _MAGIC:
        raise ValueError(f"it begins with {data[:4].hex() or 'nothing'}, expected the magic number {_MAGIC}")
    try:
        return BitMap64.deserialize(data[4:])
    except DAMAGE as error:
        raise ValueError(f"it is not a bitmap ({describe(error)})") from error


def serialize_bitmap(rows: BitMap64) -> bytes:
    """Return ``rows`` as Delta stores them; :func:`parse_bitmap` is the inverse."""
    compact = rows.copy()
    compact.run_optimize()
    return struct.pack("<i", _MAGIC) + compact.serialize()


def inline_vector(rows: BitMap64) -> DeletionVector:
    """Return the vector that deletes ``rows``, with an inline bitmap."""
    data = serialize_bitmap(rows)
    return DeletionVector("i", encode_z85(data), sizeInBytes=len(data), cardinality=len(rows))


class VectorReader:
    """Reads the vectors of one table.

    Args:
        storage: Storage of the table. Vectors elsewhere, those of a clone's origin, must be on the same disk or in the
            same bucket.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._file = lru_cache(maxsize=_FILES_KEPT)(self._read_file)

    def rows(self, vector: DeletionVector | None) -> BitMap64:
        """Return the rows that ``vector`` deletes; empty without a vector.

        Raises:
            FileNotFoundError: Its file is gone.
            ValueError: It is damaged, or is in a location that cannot be read. Says why.
        """
        if vector is None:
            return BitMap64()
        if vector.storageType == "i":
            return self._checked(decode_z85(vector.pathOrInlineDv)[: vector.sizeInBytes], vector)
        data = self._file(absolute_vector(self._storage.uri, vector).pathOrInlineDv)
        start = vector.offset or 0
        end = start + _SIZE_BYTES + vector.sizeInBytes
        if data[:1] != bytes([_FILE_VERSION]):
            raise ValueError(f"its file has format {data[:1].hex() or 'nothing'}, expected {_FILE_VERSION:02x}")
        if len(data) < end + _SIZE_BYTES or struct.unpack_from(">i", data, start)[0] != vector.sizeInBytes:
            raise ValueError(
                f"its file has {len(data)} bytes, too few for a vector of {vector.sizeInBytes} bytes at {start}"
            )
        bitmap = data[start + _SIZE_BYTES : end]
        if zlib.crc32(bitmap) != struct.unpack_from(">I", data, end)[0]:
            raise ValueError("its checksum does not match")
        return self._checked(bitmap, vector)

    @staticmethod
    def _checked(data: bytes, vector: DeletionVector) -> BitMap64:
        rows = parse_bitmap(data)
        if len(rows) != vector.cardinality:
            raise ValueError(f"it has {len(rows)} rows, but the log says {vector.cardinality}")
        return rows

    def _read_file(self, uri: str) -> bytes:
        root = f"{self._storage.uri}/"
        if uri.startswith(root):
            return _whole(self._storage, unquote(uri.removeprefix(root)))
        folder, _, name = uri.rpartition("/")
        elsewhere = self._storage.beside(folder)
        if elsewhere is None:
            raise ValueError(f"it is at {uri}, outside the table, in storage that the table's credentials do not cover")
        return _whole(elsewhere, unquote(name))


def _whole(storage: Storage, key: str) -> bytes:
    meta = storage.head(key)
    if meta is not None and meta.size_bytes > _MAX_FILE_BYTES:
        raise ValueError(f"its file has {meta.size_bytes} bytes, expected at most {_MAX_FILE_BYTES}")
    return storage.get(key)[0]
