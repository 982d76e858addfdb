"""Storage on a file system: plain system calls, which are several times faster here than an object store client."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final
from urllib.parse import quote, unquote

from airflow_provider_fds.delta.storage.storage import ObjectMeta
from airflow_provider_fds.errors import AccessDeniedError, RequestRefusedError, StorageError, TornFileError
from airflow_provider_fds.schemes import PATH_SAFE

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names that :func:`_temporary_beside` gives.
_TEMPORARY: Final = re.compile(r"\..+\.\d+\.[0-9a-f]{16}\.tmp", re.DOTALL)
#: Non-blocking, because a pipe without a writer would block the process that opens it.
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_READ_NO_LINK: Final = _READ | os.O_NOFOLLOW
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


class LocalStorage:
    """A folder on a local disk or a mounted file system (NFS).

    Writes are atomic: a temporary file in the same folder, synced, then linked or renamed to its name. Names that start
    with ``.`` (such temporary files, Hadoop's checksums) are never listed.

    No key leads out of the folder, neither by ``..`` nor by a symbolic link inside it. The folder itself, and the
    folders above it, may be symbolic links.

    Args:
        path: The folder; it need not exist. A relative path is resolved once, against the working directory.
    """

    is_file_system: Final = True

    def __init__(self, path: str) -> None:
        # abspath, not resolve(): keep the symbolic link under which the user knows the table
        self._path = os.path.abspath(path)  # noqa: PTH100
        # folders known to be inside; writes and removals check again
        self._folders_inside: set[str] = {""}
        # a name that is not UTF-8 is encoded by its bytes; Path keeps them as surrogates
        self.uri = "file://" + quote(os.fsencode(self._path), safe=PATH_SAFE).rstrip("/")

    def __repr__(self) -> str:
        return f"LocalStorage({self._path!r})"

    @property
    def root(self) -> Path:
        """The folder. Made when it is asked for: a storage is opened for each of thousands of tables."""
        return Path(self._path)

    def head(self, key: str) -> ObjectMeta | None:
        """Return the file's metadata, or ``None`` if there is no file of that name."""
        try:
            path = self._to_read(key)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                found = os.stat(self._inside(key))  # noqa: PTH116 - os.stat like the lstat above, which is the hot path of a poll
        except _ABSENT:
            return None
        except OSError as error:
            raise self._error("looking at", key, error) from error
        return _meta(key, found) if stat.S_ISREG(found.st_mode) else None

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield the files of ``folder`` in ascending order of name, only those after ``after``."""
        with self._errors("listing", folder):
            path = f"{self._path}/{folder}" if folder in self._folders_inside else self._inside(folder)
            self._folders_inside.add(folder)
            try:
                names = os.listdir(path)  # noqa: PTH208 - names only, sorted before any file is examined
            except _ABSENT:
                return
        names = [name for name in names if name[0] != "." and (after is None or name > after)]
        names.sort()
        prefix = f"{folder}/" if folder else ""
        for name in names:
            try:
                found = os.lstat(f"{path}/{name}")
            except OSError:
                found = None
            if found is not None and stat.S_ISREG(found.st_mode):
                yield _meta(prefix + name, found)
            # a file that log cleanup removes between the two calls is treated as absent
            elif (meta := self.head(prefix + name)) is not None:
                yield meta

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """Return the file's content. Raises ``TornFileError`` if it was written at the same time."""
        try:
            # a fraction of the cost of a file object; planning reads ten thousand small files
            descriptor = self._open(key)
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode) and not stat.S_ISDIR(before.st_mode):
                    raise self._not_regular(key)
                data = os.read(descriptor, before.st_size + 1)
                while len(data) < before.st_size and (more := os.read(descriptor, before.st_size + 1 - len(data))):
                    data += more
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._error("reading", key, error) from error
        if (before.st_size, before.st_mtime_ns) != (len(data), after.st_mtime_ns):
            raise TornFileError(
                f"{self._uri_of(key)} changed while it was read ({before.st_size} bytes, then {len(data)}): its "
                "writer does not replace files atomically. Try again when it has finished",
                table=self.uri,
            )
        return data, _meta(key, after)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """Yield the file's content in chunks of ``chunk_bytes``."""
        with self._errors("reading", key):
            file = self._opened(key)
        with file:
            while True:
                with self._errors("reading", key):
                    chunk = file.read(chunk_bytes)
                if not chunk:
                    return
                yield chunk

    def open(self, key: str) -> BinaryIO:
        """Open the file for reading with seek."""
        with self._errors("opening", key):
            return io.BufferedReader(self._opened(key))

    def _opened(self, key: str) -> io.FileIO:
        file = io.FileIO(key, "rb", opener=lambda name, _: self._open(name))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise self._not_regular(key)
        return file

    def _open(self, key: str) -> int:
        """Open the file and return its descriptor."""
        try:
            return os.open(self._to_read(key), _READ_NO_LINK)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return os.open(self._inside(key), _READ)

    def _not_regular(self, key: str) -> RequestRefusedError:
        return RequestRefusedError(
            f"reading {self._uri_of(key)}: it is a pipe, a socket or a device, not a regular file. Remove it, or "
            "correct the log that names it",
            table=self.uri,
        )

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the file atomically if its name is free; return whether it was written."""
        target = Path(self._inside(key))
        with self._errors("writing", key):
            if target.exists():
                return False
            temporary = _temporary_beside(target)
            try:
                with _synced(temporary) as file:
                    file.write(data)
                # link() refuses an existing name atomically, which rename() does not
                os.link(temporary, target)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)
        return True

    def put(self, key: str, data: bytes) -> None:
        """Write or replace the file atomically."""
        self.put_file(key, io.BytesIO(data))

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Write or replace the file atomically with all of ``file``."""
        target = Path(self._inside(key))
        with self._errors("writing", key):
            temporary = _temporary_beside(target)
            try:
                file.seek(0)
                with _synced(temporary) as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)

    def delete(self, key: str) -> None:
        """Remove the file; not an error if it does not exist."""
        with self._errors("deleting", key), suppress(*_ABSENT):
            # removes a link itself, not its target
            Path(self._inside(key, follows=False)).unlink()

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders, ascending."""
        with self._errors("listing", folder):
            try:
                with os.scandir(self._inside(folder)) as found:
                    return sorted(item.name for item in found if item.name[0] != "." and item.is_dir())
            except _ABSENT:
                return []

    def delete_folder(self, folder: str) -> None:
        """Remove the folder and its contents; not an error if it does not exist."""
        with self._errors("deleting", folder), suppress(*_ABSENT):
            # refuses a link, and follows none below
            shutil.rmtree(self._inside(folder, follows=False))

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        """Remove the temporary files of dead writers."""
        with self._errors("deleting", folder), suppress(*_ABSENT):
            for path in Path(self._inside(folder)).iterdir():
                if _TEMPORARY.fullmatch(path.name) and path.lstat().st_mtime_ns < before_ms * 1_000_000:
                    path.unlink(missing_ok=True)

    def beside(self, uri: str) -> LocalStorage | None:
        """Return the folder at ``uri`` if it is a file URI, with one slash (Hadoop's) or three; else ``None``."""
        if not uri.startswith("file:"):
            return None
        return LocalStorage("/" + unquote(uri.removeprefix("file:"), errors="surrogateescape").lstrip("/"))

    async def head_async(self, key: str) -> ObjectMeta | None:
        """Like :meth:`head`, in a thread, because a network file system may be slow."""
        # most readers never wait
        import asyncio

        return await asyncio.to_thread(self.head, key)

    def _to_read(self, key: str) -> str:
        """Return the path of ``key`` after checking that its folder is inside; the file itself may still be a link.

        Planning reads ten thousand files of one folder, so the folder is checked once.
        """
        folder, _, name = key.rpartition("/")
        if name == ".." or folder not in self._folders_inside:
            return self._inside(key)
        return f"{self._path}/{key}"

    def _inside(self, key: str, *, follows: bool = True) -> str:
        """Return the path of ``key``.

        Costs a few system calls of a microsecond each. A link created afterwards is not detected: whoever can create it
        can write to the folder itself.

        Raises:
            AccessDeniedError: It is outside the folder, by its name or by a symbolic link.
        """
        path = self._path
        if not key:
            return path
        segments = key.split("/")
        if ".." in segments or key[0] == "/":
            raise AccessDeniedError(
                f"{key!r} is outside {self.uri} and is not touched: the name of a file in this folder cannot "
                "contain '..'",
                table=self.uri,
            )
        last = len(segments) - 1
        for number, segment in enumerate(segments):
            path = f"{path}/{segment}"
            if number == last:
                self._folders_inside.add(key.rpartition("/")[0])
                if not follows:
                    break
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                # it does not exist, or cannot be examined: then its target cannot be read either
                break
            if stat.S_ISLNK(mode) and not Path(path).resolve().is_relative_to(self.root.resolve()):
                raise AccessDeniedError(
                    f"{self._uri_of(key)} is outside {self.uri}, because {path} is a symbolic link, and is not "
                    "touched. Replace the link with the files, or use the folder that contains both",
                    table=self.uri,
                )
        return f"{self._path}/{key}"

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{quote(os.fsencode(key), safe=PATH_SAFE)}"

    @contextmanager
    def _errors(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # FileNotFoundError means "absent" only to readers; a writer could not create the folder
            if isinstance(error, FileNotFoundError) and doing != "writing":
                raise
            raise self._error(doing, key, error) from error

    def _error(self, doing: str, key: str, error: OSError) -> Exception:
        where = self._uri_of(key)
        if isinstance(error, NotADirectoryError) and doing != "writing":
            return FileNotFoundError(error.errno, error.strerror, error.filename)
        if isinstance(error, NotADirectoryError | FileExistsError):
            return RequestRefusedError(
                f"{doing} {where}: {_file_above(self.root / key)} is a file, but FDS needs a folder there. Move the "
                "file away, or use another folder",
                table=self.uri,
            )
        if isinstance(error, PermissionError) and error.errno == errno.EPERM and doing == "writing":
            return RequestRefusedError(
                f"{doing} {where}: {error.strerror}; the file system refuses it, possibly because it does not "
                "support hard links, which FDS needs to write a file only once. Use another file system or an "
                "object store",
                table=self.uri,
            )
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            return AccessDeniedError(
                f"{doing} {where}: {error.strerror}; give the user of this process access to it", table=self.uri
            )
        return StorageError(f"{doing} {where}: {error.strerror or error}", table=self.uri)


def _file_above(path: Path) -> Path:
    """Return the file that takes the place of a folder above ``path``."""
    return next((folder for folder in path.parents if folder.exists() and not folder.is_dir()), path.parent)


def _meta(key: str, found: os.stat_result) -> ObjectMeta:
    # a copy can keep its modification time, but not the time at which the kernel changed the inode
    etag = (found.st_ino, found.st_ctime_ns)
    return ObjectMeta(key, found.st_size, found.st_mtime_ns // 1_000_000, etag)


def _temporary_beside(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(8).hex()}.tmp")


@contextmanager
def _synced(path: Path) -> Iterator[IO[bytes]]:
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    # without it a crash of the machine may undo the rename; some file systems cannot sync a folder
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
