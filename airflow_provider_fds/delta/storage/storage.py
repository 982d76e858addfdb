"""The storage protocol: the operations FDS needs of an object store or a file system, and nothing more.

Keys are relative to the storage's root, use ``/``, and are **decoded** names (as on disk); the root's ``uri`` is
percent-encoded. All methods raise :class:`~airflow_provider_fds.errors.StorageError` (retryable) or
:class:`~airflow_provider_fds.errors.AccessDeniedError`. A missing object is a value (``None``) or a
``FileNotFoundError``, as documented, never a ``StorageError``.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class ObjectMeta(NamedTuple):
    """One object: its key, size and time of last modification (milliseconds since the epoch, UTC).

    ``etag`` changes with the content: two reads of a key with equal ETags saw the same bytes. It may also change when
    the content does not. ``None`` if the storage has no ETags.
    """

    key: str
    size_bytes: int
    modified_ms: int
    etag: object = None


class Storage(Protocol):
    """A folder in an object store or file system.

    Attributes:
        uri: Percent-encoded URI of the root with scheme (``file:///…``, ``s3://bucket/…``), no trailing slash.
    """

    uri: str

    @property
    def is_file_system(self) -> bool:
        """Whether it is a mounted file system: it can show incomplete files, and answers before a thread wakes up."""

    def head(self, key: str) -> ObjectMeta | None:
        """Return the object's metadata, or ``None`` if it does not exist. One request."""

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield the direct children of ``folder`` whose name is greater than ``after`` (exclusive), ascending.

        ``after`` is a name without folder. Names compare by their UTF-8 bytes. A missing folder yields nothing.
        Sub-folders are not listed.
        """

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """Return the whole object. Raises ``FileNotFoundError`` if it does not exist."""

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """Yield the object in chunks of about ``chunk_bytes``. Raises ``FileNotFoundError`` at the first chunk."""

    def open(self, key: str) -> BinaryIO:
        """Open the object for reading with seek (Parquet). Raises ``FileNotFoundError``."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object atomically if its name is free; return whether it was written."""

    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite the object; a reader sees the old or the new content, never a part."""

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Write or overwrite the object with all of ``file``, of any size; a reader never sees a part."""

    def delete(self, key: str) -> None:
        """Remove the object; not an error if it does not exist."""

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the direct sub-folders of ``folder``, ascending; empty if it does not exist."""

    def delete_folder(self, folder: str) -> None:
        """Remove the folder and its contents, at any depth; not an error if it does not exist. Not atomic."""

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        """Remove what abandoned writes to ``folder``, begun before ``before_ms``, have left; no reader sees it."""

    def beside(self, uri: str) -> Storage | None:
        """Return the folder at the encoded ``uri``, or ``None`` if it is not on the same disk or in the same bucket."""

    async def head_async(self, key: str) -> ObjectMeta | None:
        """Like :meth:`head`, without blocking the event loop."""
