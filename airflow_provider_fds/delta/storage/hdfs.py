"""Storage on HDFS through hdfs-native, which needs neither a JVM nor Hadoop's libraries."""

from __future__ import annotations

import asyncio
import atexit
import io
import re
import secrets
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast
from urllib.parse import quote, unquote

from airflow_provider_fds.delta.storage.forks import ForkGuard
from airflow_provider_fds.delta.storage.storage import ObjectMeta
from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, RequestRefusedError, StorageError
from airflow_provider_fds.schemes import PATH_SAFE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from hdfs_native import AsyncClient, AsyncFileReader, FileStatus
    from typing_extensions import Buffer

T = TypeVar("T")

#: Options of :func:`open_hdfs`.
OPTIONS: Final = ("config", "config_dir", "kerberos_principal", "kerberos_keytab", "kerberos_cache")

#: The longest time for one answer of a NameNode or DataNode. The client itself waits forever for a silent one.
ANSWER_SECONDS: float = 60.0

#: The longest that the end of a process waits for the client.
_EXIT_SECONDS: Final = 2.0
_READ_AHEAD_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 4 << 20
#: Names that :meth:`HdfsStorage._temporary_beside` gives.
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)
#: The client has no classes for most errors, only ``RPCError("<class of the exception>", "<message>…<stack>")``.
_REMOTE: Final = re.compile(r'RPCError\("(?P<error>[\w.$]+)", "(?P<text>.*)', re.DOTALL)
_DENIED: Final = re.compile(r"AccessControlException|SaslException|AuthorizationException|SASL|GSSAPI|[Kk]erberos")
_NO_NAMENODE: Final = "No NameNode hosts found"
_FORKS: Final = ForkGuard("HDFS")


class HdfsStorage:
    """A folder in HDFS.

    A write goes to a temporary file in the same folder, which the NameNode then renames: a reader sees all of it or
    nothing. Names that start with ``.`` (such temporary files) are never listed.

    Args:
        client: hdfs-native's client of the NameNode or name service; shared between tables.
        uri: Encoded URI of the folder with scheme and authority, without trailing slash.
        path: Decoded path of the folder, with a slash at its beginning and none at its end; empty for the root.
    """

    is_file_system: Final = False

    def __init__(self, client: AsyncClient, uri: str, path: str) -> None:
        self.uri = uri
        self._client = client
        self._path = path

    def __repr__(self) -> str:
        return f"HdfsStorage({self.uri!r})"

    def head(self, key: str) -> ObjectMeta | None:
        """Return the file's metadata with one call to the NameNode, ``None`` if there is no file of that name."""
        with self._errors("looking at", key):
            try:
                return _meta(key, _wait(self._client.get_file_info(self._inside(key))))
            except FileNotFoundError:
                return None

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield the files of ``folder`` by ascending name, only those after ``after``.

        HDFS lists a folder from its beginning, in another order than that of UTF-8: all names are read and sorted.
        """
        prefix = f"{folder}/" if folder else ""
        # UTF-8 keeps the order of code points, in which Python compares
        found = sorted((name, status) for name, status in self._children(folder) if after is None or name > after)
        for name, status in found:
            if (meta := _meta(prefix + name, status)) is not None:
                yield meta

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """Return the whole file."""
        with self._errors("reading", key):
            status, reader = _wait(self._open(key))
            return _wait(reader.read()), _meta_of_file(key, status)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """Yield the file's content in chunks of ``chunk_bytes``."""
        with self._errors("reading", key):
            _, reader = _wait(self._open(key))
        while True:
            with self._errors("reading", key):
                chunk = _wait(reader.read(chunk_bytes))
            if not chunk:
                return
            yield chunk

    def open(self, key: str) -> BinaryIO:
        """Open the file for reading with seek, with read-ahead."""
        with self._errors("opening", key):
            _, reader = _wait(self._open(key))
        return cast("BinaryIO", io.BufferedReader(_RawReader(self, key, reader), _READ_AHEAD_BYTES))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the file atomically if there is none; return whether it was written."""
        return self._put(key, io.BytesIO(data), overwrite=False)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace the file atomically."""
        self._put(key, io.BytesIO(data), overwrite=True)

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Write or replace the file atomically with all of ``file``."""
        file.seek(0)
        self._put(key, file, overwrite=True)

    def _put(self, key: str, content: IO[bytes], *, overwrite: bool) -> bool:
        with self._errors("writing", key):
            path = self._inside(key)
            temporary = self._temporary_beside(path)
            try:
                _write(self._client, temporary, content)
                # the NameNode renames atomically, and refuses an existing name unless told to overwrite it
                _wait(self._client.rename(temporary, path, overwrite))
            except FileExistsError:
                return False
            finally:
                with suppress(OSError, RuntimeError):
                    _wait(self._client.delete(temporary))
        return True

    def delete(self, key: str) -> None:
        """Remove the file; not an error if there is none."""
        with self._errors("deleting", key), suppress(FileNotFoundError):
            _wait(self._client.delete(self._inside(key)))

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders, ascending."""
        return sorted(name for name, status in self._children(folder) if status.isdir)

    def delete_folder(self, folder: str) -> None:
        """Remove the folder and its contents; not an error if there is none."""
        with self._errors("deleting", folder), suppress(FileNotFoundError):
            _wait(self._client.delete(self._inside(folder), recursive=True))

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        """Remove the temporary files of dead writers."""
        with self._errors("deleting", folder), suppress(FileNotFoundError):
            for status in _wait(self._listed(folder)):
                if _TEMPORARY.fullmatch(_name(status)) and status.modification_time < before_ms:
                    _wait(self._client.delete(status.path))

    def beside(self, uri: str) -> HdfsStorage | None:
        """Return the folder at ``uri`` if it is in the same file system, else ``None``."""
        authority, path = _authority_and_path(uri)
        if authority != _authority_and_path(self.uri)[0]:
            return None
        return HdfsStorage(self._client, uri, path)

    async def head_async(self, key: str) -> ObjectMeta | None:
        """Like :meth:`head`, without blocking the event loop."""
        with self._errors("looking at", key):
            try:
                return _meta(key, await asyncio.wait_for(self._client.get_file_info(self._inside(key)), ANSWER_SECONDS))
            except FileNotFoundError:
                return None

    def _children(self, folder: str) -> list[tuple[str, FileStatus]]:
        """Return the visible names in a folder, with what they are; empty if there is no such folder."""
        with self._errors("listing", folder):
            try:
                found = _wait(self._listed(folder))
            except FileNotFoundError:
                return []
        return [(name, status) for status in found if (name := _name(status))[0] != "."]

    async def _listed(self, folder: str) -> list[FileStatus]:
        path = self._inside(folder)
        # a file is listed as itself
        return [status async for status in self._client.list_status(path or "/") if status.path != path]

    async def _open(self, key: str) -> tuple[FileStatus, AsyncFileReader]:
        path = self._inside(key)
        return await self._client.get_file_info(path), await self._client.read(path)

    def _temporary_beside(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}.{secrets.token_hex(8)}.tmp"

    def _inside(self, key: str) -> str:
        """Return the path of ``key``. Raises :class:`AccessDeniedError` if it is outside the folder."""
        if key.startswith("/") or ".." in key.split("/"):
            raise AccessDeniedError(
                f"{key!r} is outside {self.uri} and is not touched: the name of a file in this folder cannot "
                "contain '..'",
                table=self.uri,
            )
        return f"{self._path}/{key}".rstrip("/")

    @contextmanager
    def _errors(self, doing: str, key: str) -> Iterator[None]:
        _FORKS.check(doing, self.uri, key)
        try:
            yield
        except FileNotFoundError as error:
            if doing not in ("writing", "listing"):
                raise FileNotFoundError(_first_line(str(error))) from None
            raise StorageError(
                f"{doing} {self._uri_of(key)}: it was removed at the same time ({_first_line(str(error))})",
                table=self.uri,
            ) from None
        except (OSError, RuntimeError, NotImplementedError, TimeoutError) as error:
            raise self._error(doing, key, error) from None

    def _error(self, doing: str, key: str, error: Exception) -> StorageError:
        what = f"{doing} {self._uri_of(key)}"
        text = _cause(error)
        if isinstance(error, TimeoutError):
            return StorageError(f"{what}: no answer within {ANSWER_SECONDS:g} seconds", table=self.uri)
        if _NO_NAMENODE in text:
            return RequestRefusedError(
                f"{what}: {_authority_and_path(self.uri)[0]} has no port, and is no name service of the Hadoop "
                "configuration. Add the port of the NameNode, or set HADOOP_CONF_DIR to the folder of hdfs-site.xml",
                table=self.uri,
            )
        if _DENIED.search(text):
            return AccessDeniedError(
                f"{what}: access denied ({text}). Check the user (HADOOP_USER_NAME or Kerberos): it must be allowed "
                "to list, to read and, in staging, to write",
                table=self.uri,
            )
        if isinstance(error, NotImplementedError):
            return RequestRefusedError(f"{what}: the HDFS client does not support it ({text})", table=self.uri)
        return StorageError(f"{what}: {text}", table=self.uri)

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{quote(key, safe=PATH_SAFE)}"


class _RawReader(io.RawIOBase):
    """hdfs-native's reader as a raw file of the standard library, so that it can be buffered and read by pyarrow."""

    def __init__(self, storage: HdfsStorage, key: str, reader: AsyncFileReader) -> None:
        self._storage = storage
        self._key = key
        self._reader = reader
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        length = min(len(view), len(self._reader) - self._position)
        if length <= 0:
            return 0
        with self._storage._errors("reading", self._key):  # noqa: SLF001 - one class in two parts
            data = _wait(self._reader.read_range(self._position, length))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = max(0, offset + (0, self._position, len(self._reader))[whence])
        return self._position

    def tell(self) -> int:
        return self._position


def open_hdfs(uri: str, options: Mapping[str, Any]) -> HdfsStorage:
    """Open the folder at ``uri``. Nothing is read or written, and no connection is made.

    Args:
        uri: Canonical URI, ``hdfs://<NameNode>:<port>/<path>`` or ``hdfs://<name service>/<path>``.
        options: :data:`OPTIONS` of hdfs-native. ``config`` holds Hadoop settings, which take precedence over those in
            ``config_dir`` (default: ``HADOOP_CONF_DIR``, or ``HADOOP_HOME``).

    Raises:
        ConfigurationError: An unknown option, or hdfs-native is not installed.
    """
    given = {key: value for key, value in options.items() if key != "storage_conn_id"}
    if unknown := sorted(given.keys() - set(OPTIONS)):
        raise ConfigurationError(
            f"unknown options of the storage of {uri}: {', '.join(unknown)}; expected {', '.join(OPTIONS)}", table=uri
        )
    config = given.pop("config", None) or {}
    if not hasattr(config, "items"):
        raise ConfigurationError(f"option 'config' of the storage of {uri} must be a mapping of settings", table=uri)
    settings = tuple(sorted((str(key), str(value)) for key, value in config.items()))
    authority, path = _authority_and_path(uri)
    others = tuple(sorted((key, str(value)) for key, value in given.items()))
    return HdfsStorage(_client(authority, settings, others), uri, path)


# a client holds the connections to a NameNode: one for all tables of a file system
@lru_cache(maxsize=128)
def _client(authority: str, config: tuple[tuple[str, str], ...], others: tuple[tuple[str, str], ...]) -> AsyncClient:
    try:
        from hdfs_native import AsyncClient
    except ImportError as error:
        raise ConfigurationError(
            f"{authority} is on HDFS, for which hdfs-native is not installed: pip install 'airflow-provider-fds[hdfs]'"
        ) from error
    try:
        return AsyncClient(authority, dict(config), **dict(others))
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{authority} cannot be used: {_cause(error)}. A name service needs hdfs-site.xml in HADOOP_CONF_DIR; "
            "for one NameNode write hdfs://<host>:<port>/<path>"
        ) from None


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a thread of its own, in which calls can be given up after a time."""
    loop = asyncio.new_event_loop()
    atexit.register(_wait_for_client)
    threading.Thread(target=loop.run_forever, name="fds-hdfs", daemon=True).start()
    return loop


def _wait_for_client() -> None:
    """Wait until the client's threads have left Python: one that returns to an interpreter that ends aborts it.

    After a thread of the client has handed over an answer, it is still inside the event loop's code for a moment.
    """
    deadline = time.monotonic() + _EXIT_SECONDS
    while time.monotonic() < deadline:
        known = {thread.ident for thread in threading.enumerate()}
        if sys._current_frames().keys() <= known:  # noqa: SLF001 - documented, and the only way to see them
            return
        time.sleep(0.001)


def _wait(call: Awaitable[T]) -> T:
    """Return the answer of a call. Raises ``TimeoutError`` after :data:`ANSWER_SECONDS`."""
    return asyncio.run_coroutine_threadsafe(_in_time(call), _loop()).result()


async def _in_time(call: Awaitable[T]) -> T:
    return await asyncio.wait_for(call, ANSWER_SECONDS)


def _write(client: AsyncClient, path: str, content: IO[bytes]) -> None:
    from hdfs_native import WriteOptions

    writer = _wait(client.create(path, WriteOptions(create_parent=True)))
    read: Callable[[int], bytes] = content.read
    while chunk := read(_WRITE_BYTES):
        _wait(writer.write(chunk))
    _wait(writer.close())


def _name(status: FileStatus) -> str:
    return status.path.rpartition("/")[2]


def _meta(key: str, status: FileStatus) -> ObjectMeta | None:
    return None if status.isdir else _meta_of_file(key, status)


def _meta_of_file(key: str, status: FileStatus) -> ObjectMeta:
    return ObjectMeta(key, status.length, status.modification_time)


def _authority_and_path(uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority}", f"{slash}{unquote(path)}".rstrip("/")


def _cause(error: Exception) -> str:
    """Return the error's text on one line, without the NameNode's stack."""
    remote = _REMOTE.search(str(error))
    if remote is None:
        return _first_line(str(error)) or type(error).__name__
    return f"{remote['error'].rpartition('.')[2]}: {_first_line(remote['text'])}"


def _first_line(text: str) -> str:
    return " ".join(re.split(r"\\n|\n", text, maxsplit=1)[0].split())
