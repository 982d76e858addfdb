"""Storage in an object store (S3, GCS, Azure) through obstore."""

from __future__ import annotations

import io
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TypeVar, cast, runtime_checkable
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from airflow_provider_fds.delta.storage.client_errors import cause, has_listing_broken_off, storage_error
from airflow_provider_fds.delta.storage.client_limits import TRIES, pause_seconds
from airflow_provider_fds.delta.storage.forks import ForkGuard
from airflow_provider_fds.delta.storage.storage import ObjectMeta
from airflow_provider_fds.errors import AccessDeniedError, RequestRefusedError, StorageError
from airflow_provider_fds.schemes import PATH_SAFE, with_plain_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store
    from typing_extensions import Buffer

    Store = S3Store | GCSStore | AzureStore | MemoryStore

_PAGE: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_READ_AHEAD_BYTES: Final = 1 << 20
#: Sorts after every name in a folder of that name, and before everything after it.
_LAST: Final = "\U0010ffff"

_FORKS: Final = ForkGuard("object store")
_Answer = TypeVar("_Answer")


@runtime_checkable
class Renewable(Protocol):
    """Credentials of which others can be had if storage refuses them, as a catalog gives them."""

    @property
    def held(self) -> object:
        """The credentials that the next request gets; nothing, if there are none yet."""

    def forget(self, refused: object) -> None:
        """Let the next request get others than ``refused``. Does not block."""


class ObjectStorage:
    """A folder in a bucket or container.

    The store lists names in the order of their UTF-8 bytes. If it does not guarantee that (S3 Express directory
    buckets), names are collected and sorted here. Every object appears as a whole or not at all.

    Args:
        store: obstore's store of the bucket or container, without a prefix; shared between tables.
        uri: Encoded URI of the folder with scheme, without trailing slash.
        prefix: Decoded path of the folder within the bucket, without slashes at its ends; may be empty.
        is_ordered: Whether the store lists in order.
        credentials: Whose credentials are used, in words, for messages.
        renewable: The credentials, if there are others once storage refuses them: a read is then repeated once.
    """

    is_file_system: Final = False

    def __init__(
        self,
        store: Store,
        uri: str,
        prefix: str,
        *,
        is_ordered: bool = True,
        credentials: str = "the credentials of the environment",
        renewable: Renewable | None = None,
    ) -> None:
        self.uri = uri
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._is_ordered = is_ordered
        self._credentials = credentials
        self._renewable = renewable

    def __repr__(self) -> str:
        return f"ObjectStorage({self.uri!r})"

    def head(self, key: str) -> ObjectMeta | None:
        """Return the object's metadata with one HEAD, or ``None`` if there is no such object."""
        try:
            return _meta(key, self._read("looking at", key, lambda: obstore.head(self._store, self._prefix + key)))
        except FileNotFoundError:
            return None

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield the objects of ``folder`` by ascending name, only those after ``after``, with one LIST per 1,000."""
        listing = _Listing(self._prefix, folder, after, is_ordered=self._is_ordered)
        while (offset := listing.next_offset) is not None:
            pages = iter(self._list(listing.path, offset))
            children: list[ObjectMeta] = []
            while True:
                used = self._used
                try:
                    with self._errors("listing", folder):
                        page = next(pages, None)
                except StorageError as error:
                    if listing.has_renewed or not self._renewed(error, used):
                        time.sleep(listing.pause_before_asking_again(error))
                    else:
                        listing.has_renewed = True
                    children = []
                    break
                if page is None:
                    listing.finish()
                    break
                children += listing.children(page)
                if self._is_ordered:
                    yield from self._in_order(listing, children)
                    children = []
                    if listing.is_inside_subfolder:
                        break
            children.sort()
            yield from children

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """Return the whole object with one GET."""
        result = self._read("reading", key, lambda: obstore.get(self._store, self._prefix + key))
        with self._errors("reading", key):
            return bytes(result.bytes()), _meta(key, result.meta)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """Yield the object in chunks of at least ``chunk_bytes``, with one GET."""
        found = self._read("reading", key, lambda: obstore.get(self._store, self._prefix + key))
        chunks = iter(found.stream(min_chunk_size=chunk_bytes))
        while True:
            with self._errors("reading", key):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    def open(self, key: str) -> BinaryIO:
        """Open the object for reading with seek: one HEAD, then ranged GETs with read-ahead."""
        reader = self._read(
            "opening",
            key,
            lambda: obstore.open_reader(self._store, self._prefix + key, buffer_size=_READ_AHEAD_BYTES),
        )
        return cast("BinaryIO", io.BufferedReader(_RawReader(self, key, reader), _READ_AHEAD_BYTES))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object if its name is free (a conditional PUT); return whether it was written."""
        with self._errors("writing", key):
            try:
                # a multipart upload would not carry the condition
                obstore.put(self._store, self._prefix + key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def put(self, key: str, data: bytes) -> None:
        """Write or replace the object."""
        with self._errors("writing", key):
            obstore.put(self._store, self._prefix + key, data)

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Upload all of ``file``, in parts if it is large; the object appears once all parts are uploaded."""
        file.seek(0)
        with self._errors("writing", key):
            obstore.put(self._store, self._prefix + key, file)

    def delete(self, key: str) -> None:
        """Remove the object; not an error if it does not exist."""
        with self._errors("deleting", key), suppress(FileNotFoundError):
            obstore.delete(self._store, self._prefix + key)

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders, ascending, with one LIST per 1,000 of them."""
        path = f"{self._prefix}{folder}".rstrip("/")
        found = self._read("listing", folder, lambda: obstore.list_with_delimiter(self._store, path or None))
        return sorted(prefix.rstrip("/").rsplit("/", 1)[-1] for prefix in found["common_prefixes"])

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below ``folder``: one LIST and one DELETE per 1,000."""
        for page in self._list(f"{self._prefix}{folder}".rstrip("/"), ""):
            with self._errors("deleting", folder), suppress(FileNotFoundError):
                obstore.delete(self._store, [item["path"] for item in page])

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        """Do nothing: only complete objects are visible. The bucket must expire the parts of abandoned uploads."""

    def beside(self, uri: str) -> ObjectStorage | None:
        """Return the folder at ``uri`` if it is in the same bucket or container, else ``None``."""
        bucket, path = _bucket_and_path(uri)
        if bucket != _bucket_and_path(self.uri)[0]:
            return None
        return ObjectStorage(
            self._store,
            uri,
            unquote(path),
            is_ordered=self._is_ordered,
            credentials=self._credentials,
            renewable=self._renewable,
        )

    async def head_async(self, key: str) -> ObjectMeta | None:
        """Like :meth:`head`, without blocking the event loop."""
        used = self._used
        try:
            try:
                with self._errors("looking at", key):
                    return _meta(key, await obstore.head_async(self._store, self._prefix + key))
            except AccessDeniedError as error:
                if not self._renewed(error, used):
                    raise
            with self._errors("looking at", key):
                return _meta(key, await obstore.head_async(self._store, self._prefix + key))
        except FileNotFoundError:
            return None

    def _read(self, doing: str, key: str, ask: Callable[[], _Answer]) -> _Answer:
        """Return what ``ask`` returns; asks once more if storage refuses credentials of which there may be others."""
        used = self._used
        try:
            with self._errors(doing, key):
                return ask()
        except AccessDeniedError as error:
            if not self._renewed(error, used):
                raise
        with self._errors(doing, key):
            return ask()

    @property
    def _used(self) -> object:
        return None if self._renewable is None else self._renewable.held

    def _renewed(self, error: StorageError, used: object) -> bool:
        """Return whether the next request gets other credentials than those that were ``used``."""
        if self._renewable is None or not isinstance(error, AccessDeniedError):
            return False
        self._renewable.forget(used)
        return True

    def _list(self, path: str, offset: str) -> Any:
        with self._errors("listing", path):
            # an empty prefix must be None; an empty offset would be sent
            return obstore.list(self._store, path or None, offset=offset or None, chunk_size=_PAGE)

    def _in_order(self, listing: _Listing, children: list[ObjectMeta]) -> Iterator[ObjectMeta]:
        for child in children:
            if listing.last is not None and child.key <= listing.last:
                raise StorageError(
                    f"{self.uri} lists {child.key!r} after {listing.last!r}: expected names in ascending order, "
                    "as S3, GCS and Azure list them. This store cannot be read incrementally",
                    table=self.uri,
                )
            listing.last = child.key
            yield child

    @contextmanager
    def _errors(self, doing: str, key: str) -> Iterator[None]:
        _FORKS.check(doing, self.uri, key)
        try:
            yield
        except FileNotFoundError as error:
            if doing not in ("writing", "listing"):
                raise
            raise RequestRefusedError(
                f"{doing} {self._uri_of(key)}: the bucket or container does not exist ({cause(error)}). Create "
                "it, or check its name and region",
                table=self.uri,
            ) from None
        except (BaseError, OSError, ValueError) as error:
            raise storage_error(
                error, doing=doing, where=self._uri_of(key), table=self.uri, credentials=self._credentials
            ) from None

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{quote(key, safe=PATH_SAFE)}"


class _Listing:
    """The state of a listing: direct children only; each sub-folder is skipped in one step, however full it is."""

    def __init__(self, prefix: str, folder: str, after: str | None, *, is_ordered: bool) -> None:
        self.path = f"{prefix}{folder}".rstrip("/")
        self._root_length = len(prefix)
        self._length = len(self.path) + 1 if self.path else 0
        self.next_offset: str | None = f"{self.path}/{after}".lstrip("/") if after is not None else ""
        self.last: str | None = None
        self.is_inside_subfolder = False
        self._is_ordered = is_ordered
        self._failures = 0
        #: Whether it was resumed with other credentials.
        self.has_renewed = False

    def pause_before_asking_again(self, error: StorageError) -> float:
        """Return the seconds to wait before resuming the listing at :attr:`next_offset`; raise permanent errors."""
        self._failures += 1
        if self._failures == TRIES or not has_listing_broken_off(error):
            raise error
        return pause_seconds(self._failures)

    def finish(self) -> None:
        """Record that the store has no more pages."""
        self.next_offset = None

    def children(self, page: Sequence[Any]) -> list[ObjectMeta]:
        """Return the direct children among the objects of one page; an ordered listing can continue after it."""
        found = []
        path = ""
        self.is_inside_subfolder = False
        for item in page:
            path = item["path"]
            if "/" not in path[self._length :]:
                found.append(_meta(path[self._root_length :], item))
        if not path or not self._is_ordered:
            return found
        if not found and len(page) == _PAGE:
            # a page with only a sub-folder's objects: continue after that folder
            self.is_inside_subfolder = True
            child = path[self._length :].split("/", 1)[0]
            self.next_offset = f"{path[: self._length]}{child}/{_LAST}"
        else:
            # a shorter page is the last one
            self.next_offset = path
        return found


class _RawReader(io.RawIOBase):
    """obstore's reader as a raw file of the standard library, so that it can be buffered and read by pyarrow."""

    def __init__(self, storage: ObjectStorage, key: str, reader: obstore.ReadableFile) -> None:
        self._storage = storage
        self._key = key
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        position = self._reader.tell()

        def read() -> Any:
            # a read that failed has moved the reader
            self._reader.seek(position)
            return self._reader.read(len(view))

        data = self._storage._read("reading", self._key, read)  # noqa: SLF001 - one class in two parts
        view[: len(data)] = memoryview(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()


def _bucket_and_path(uri: str) -> tuple[str, str]:
    # s3a and s3n are Hadoop's names for s3
    scheme, _, rest = with_plain_scheme(uri).partition("://")
    authority, _, path = rest.partition("/")
    return f"{scheme}://{authority}", path


def _meta(key: str, found: Any) -> ObjectMeta:
    # Azure quotes the ETag in headers but not in listings
    etag = (found["e_tag"] or "").removeprefix("W/").strip('"') or None
    return ObjectMeta(key, found["size"], (found["last_modified"] - _EPOCH) // _MILLISECOND, etag)
