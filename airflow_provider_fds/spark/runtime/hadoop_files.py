"""Small files on the local disk or any Hadoop file system: job specs, attempt reports, commits of the sink.

Paths here are Hadoop's: with or without a scheme, and never percent-encoded, because Hadoop's ``Path`` decodes nothing.
FDS's own URIs are encoded; :func:`hadoop_path` converts them.

Local files are opened directly, others through Hadoop in the session's JVM. A session on Spark Connect has no JVM;
there the caller, in the Airflow worker, supplies its own access to files (:func:`reached_by`). Standard library and
py4j only, Python 3.9 syntax.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Iterator, Optional, Protocol, Set
from urllib.parse import unquote

from airflow_provider_fds.schemes import SCHEMES

_FIRST_COMMIT = "_delta_log/00000000000000000000.json"
_LINES_BEFORE_ADDS = 20


class OtherFiles(Protocol):
    """Files that are neither local nor reached through Hadoop; paths are as everywhere in this module."""

    def read_bytes(self, path: str) -> bytes:
        """Return the whole file. Raises ``FileNotFoundError`` if it does not exist."""

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write or overwrite the file; a reader sees all of it or none."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def size_bytes(self, path: str) -> Optional[int]:
        """Return the file's size, or ``None`` if it does not exist."""

    def names(self, folder: str) -> Set[str]:
        """Return the names of the entries directly in the folder; empty if there is no folder."""

    def first_bytes(self, path: str) -> bytes:
        """Return the first bytes of the file, at least several lines; empty if the file does not exist."""

    def remove_folder(self, folder: str) -> None:
        """Remove the folder and its contents; not an error if it does not exist."""


_OTHER: ContextVar[Optional[OtherFiles]] = ContextVar("files", default=None)


@contextmanager
def reached_by(files: OtherFiles) -> Iterator[None]:
    """Within this context, files that are not local are read and written by ``files`` instead of Hadoop."""
    token = _OTHER.set(files)
    try:
        yield
    finally:
        _OTHER.reset(token)


def scheme(path: str) -> str:
    """Return the scheme in lower case, ``"file"`` for a path without one."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    return found.group(1).lower() if found else "file"


def hadoop_path(uri: str, spark: Any = None) -> str:
    """Return a URI of FDS as Spark's readers and writers need it: decoded, with a scheme Spark has a file system for.

    Without a scheme it is a local path and is used as it is. ``s3`` and ``s3n`` become ``s3a``, unless the session
    brings its own file system for them (EMR does).
    """
    name = scheme(uri)
    if name == "file":
        is_uri = uri.lower().startswith("file:")
        return f"file:/{unquote(uri[len('file:') :]).strip('/')}" if is_uri else f"file:{Path.cwd() / uri}"
    rest = unquote(uri[len(name) :]).rstrip("/")
    known = SCHEMES.get(name)
    hadoop = name if known is None else known.hadoop
    if hadoop not in (None, name) and (spark is None or _file_system_class(spark, name) is None):
        name = str(hadoop)
    return name + rest


def local_path(path: str) -> Optional[Path]:
    """Return the path on the local disk, or ``None`` if the file is not there."""
    if scheme(path) != "file":
        return None
    return Path(re.sub(r"^file:/*", "/", path, flags=re.IGNORECASE))


def read_bytes(path: str, spark: Any = None) -> bytes:
    """Return the whole file. A local one needs no session.

    Raises:
        OSError: A local file cannot be read. Other files raise what py4j raises for Hadoop.
    """
    local = local_path(path)
    if local is not None:
        return local.read_bytes()
    other = _OTHER.get()
    if other is not None:
        return other.read_bytes(path)
    stream = _file_system(spark, path).open(_path(spark, path))
    try:
        return bytes(spark._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
    finally:
        stream.close()


def write_bytes(path: str, data: bytes, spark: Any = None, *, makes_folder: bool = True) -> None:
    """Write or overwrite the file; a reader sees all of it or none. A local folder is made, unless it must be there."""
    mine = f"{socket.gethostname()}.{os.getpid()}.tmp"
    local = local_path(path)
    if local is not None:
        if makes_folder:
            local.parent.mkdir(parents=True, exist_ok=True)
        partial = local.with_name(f"{local.name}.{mine}")
        partial.write_bytes(data)
        partial.replace(local)
        return
    other = _OTHER.get()
    if other is not None:
        other.write_bytes(path, data)
        return
    files = _file_system(spark, path)
    known = SCHEMES.get(scheme(path))
    whole = known is not None and known.whole_on_close
    target = _path(spark, path)
    first = target if whole else _path(spark, f"{path}.{mine}")
    stream = files.create(first, True)  # noqa: FBT003 - overwrite; py4j knows no keywords
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()
    if not whole and not files.rename(first, target):
        # HDFS does not rename onto an existing file: the same attempt reports again
        files.delete(target, False)  # noqa: FBT003 - not recursive
        if not files.rename(first, target):
            raise OSError(f"cannot rename {path}.{mine} to {path}")


def exists(path: str, spark: Any = None) -> bool:
    """Whether the file exists."""
    local = local_path(path)
    if local is not None:
        return local.exists()
    other = _OTHER.get()
    return other.exists(path) if other is not None else bool(_file_system(spark, path).exists(_path(spark, path)))


def remove_folder(folder: str) -> None:
    """Remove a folder that is local or within :func:`reached_by`, with its contents, as far as that is allowed."""
    local = local_path(folder)
    if local is not None:
        shutil.rmtree(local, ignore_errors=True)
        return
    other = _OTHER.get()
    if other is not None:
        with suppress(Exception):
            other.remove_folder(folder)


def is_on_file_system(path: str) -> bool:
    """Whether the path is in a file system, which a machine may lack, rather than in an object store."""
    known = SCHEMES.get(scheme(path))
    return known is not None and not known.whole_on_close


def size_bytes(path: str, spark: Any = None) -> Optional[int]:
    """Return the file's size, or ``None`` if it does not exist."""
    local = local_path(path)
    if local is not None:
        try:
            return local.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
    other = _OTHER.get()
    if other is not None:
        return other.size_bytes(path)
    files, place = _file_system(spark, path), _path(spark, path)
    return int(files.getFileStatus(place).getLen()) if files.exists(place) else None


def names(folder: str, spark: Any = None) -> Set[str]:
    """Return the names of the entries directly in the folder; empty if there is no folder."""
    local = local_path(folder)
    if local is not None:
        return {child.name for child in local.iterdir()} if local.is_dir() else set()
    other = _OTHER.get()
    if other is not None:
        return other.names(folder)
    files, path = _file_system(spark, folder), _path(spark, folder)
    if not files.exists(path):
        return set()
    # one string of all paths: asking py4j for each path costs a round trip
    paths = spark._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(_plain(spark, files.listStatus(path)))
    return {path.rsplit("/", 1)[-1] for path in spark._jvm.scala.runtime.ScalaRunTime.stringOf(paths)[:-1].split(", ")}


def _plain(spark: Any, found: Any) -> Any:
    """Return a plain Java array of ``FileStatus``: py4j does not accept an array of a subclass, which S3A returns."""
    java = spark._jvm.java.lang
    length = len(found)
    plain = java.reflect.Array.newInstance(java.Class.forName("org.apache.hadoop.fs.FileStatus"), length)
    java.System.arraycopy(found, 0, plain, 0, length)
    return plain


def first_data_file(manifest: str, spark: Any = None) -> Optional[str]:
    """Return the first data file that a manifest lists, as a Hadoop path, or ``None`` if none is found."""
    for line in _head(f"{manifest}/{_FIRST_COMMIT}", spark):
        found = re.match(r'\{"add":\{.*?"path":"([^"\\]+)"', line)
        if found:
            return hadoop_path(found.group(1))
    return None


def _head(path: str, spark: Any) -> Iterator[str]:
    local = local_path(path)
    if local is not None:
        if local.is_file():
            with local.open(encoding="utf-8") as file:
                for _ in range(_LINES_BEFORE_ADDS):
                    yield file.readline()
        return
    other = _OTHER.get()
    if other is not None:
        yield from other.first_bytes(path).decode(errors="replace").split("\n")[:_LINES_BEFORE_ADDS]
        return
    stream = _file_system(spark, path).open(_path(spark, path))
    try:
        reader = spark._jvm.java.io.BufferedReader(spark._jvm.java.io.InputStreamReader(stream, "UTF-8"))
        for _ in range(_LINES_BEFORE_ADDS):
            yield reader.readLine() or ""
    finally:
        stream.close()


def _file_system_class(spark: Any, name: str) -> Optional[str]:
    """Return the class with which the session reads a scheme, or ``None`` if none is configured."""
    if _OTHER.get() is not None:
        # Hadoop's configuration files cannot be reached; only the session's own settings can
        found: Optional[str] = spark.conf.get(f"spark.hadoop.fs.{name}.impl", None)
        return found
    return _hadoop_conf(spark).get(f"fs.{name}.impl")  # type: ignore[no-any-return]


def _hadoop_conf(spark: Any) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _path(spark: Any, path: str) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(path)


def _file_system(spark: Any, path: str) -> Any:
    return _path(spark, path).getFileSystem(_hadoop_conf(spark))
