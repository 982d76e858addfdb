"""Small files that cross the border: read a job spec, leave a try report, on the local disk or any Hadoop file system.

URIs here are FDS's own: with a scheme they are percent-encoded, without one they are a local path. Hadoop's ``Path``
decodes nothing, so what is handed to Spark goes through :func:`hadoop_path`.
Standard library and py4j only, Python 3.9 syntax.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any, Iterator, Optional
from urllib.parse import unquote

#: Stores where a file appears whole when it is closed, and where a rename would be a copy.
_WHOLE_ON_CLOSE = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")

_FIRST_COMMIT = "_delta_log/00000000000000000000.json"
_LINES_BEFORE_ADDS = 20


def scheme(uri: str) -> str:
    """Return the scheme in lower case, ``"file"`` for a path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", uri)
    return found.group(1).lower() if found else "file"


def local_path(uri: str) -> Optional[Path]:
    """Return the path of a local file, ``None`` if the URI is not local."""
    if scheme(uri) != "file":
        return None
    if uri.lower().startswith("file:"):
        return Path("/" + unquote(uri[len("file:") :]).lstrip("/"))
    return Path.cwd() / uri


def hadoop_path(uri: str, spark: Any = None) -> str:
    """Return the URI as Spark's readers and writers want it: decoded, with a scheme Spark has a file system for.

    ``s3`` and ``s3n`` become ``s3a``, unless the session brings its own file system for them (EMR does).
    """
    local = local_path(uri)
    if local is not None:
        return f"file:{local}"
    name = scheme(uri)
    rest = unquote(uri[len(name) :]).rstrip("/")
    if name in ("s3", "s3n") and (spark is None or _hadoop_conf(spark).get(f"fs.{name}.impl") is None):
        name = "s3a"
    return name + rest


def read_bytes(uri: str, spark: Any = None) -> bytes:
    """Return the whole file. A local one needs no session.

    Raises:
        OSError: a local file cannot be read. Others raise what py4j brings from Hadoop.
    """
    local = local_path(uri)
    if local is not None:
        return local.read_bytes()
    stream = _file_system(spark, uri).open(_path(spark, uri))
    try:
        return bytes(spark._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
    finally:
        stream.close()


def write_bytes(uri: str, data: bytes, spark: Any = None) -> None:
    """Write or overwrite the file; a reader sees all of it or none."""
    mine = f"{socket.gethostname()}.{os.getpid()}.tmp"
    local = local_path(uri)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
        partial = local.with_name(f"{local.name}.{mine}")
        partial.write_bytes(data)
        partial.replace(local)
        return
    files = _file_system(spark, uri)
    whole = scheme(uri) in _WHOLE_ON_CLOSE
    target = _path(spark, uri)
    first = target if whole else _path(spark, f"{uri}.{mine}")
    stream = files.create(first, True)  # noqa: FBT003 - overwrite; py4j knows no keywords
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()
    if not whole and not files.rename(first, target):
        # HDFS does not rename onto a file that is there: the same try reports again
        files.delete(target, False)  # noqa: FBT003 - not recursive
        if not files.rename(first, target):
            raise OSError(f"cannot rename {uri}.{mine} to {uri}")


def first_data_file(manifest: str, spark: Any = None) -> Optional[str]:
    """Return the URI, as logged, of the first data file that a manifest lists, ``None`` if there is none to find."""
    for line in _head(f"{manifest}/{_FIRST_COMMIT}", spark):
        found = re.match(r'\{"add":\{.*?"path":"([^"\\]+)"', line)
        if found:
            return found.group(1)
    return None


def _head(uri: str, spark: Any) -> Iterator[str]:
    local = local_path(uri)
    if local is not None:
        if local.is_file():
            with local.open(encoding="utf-8") as file:
                for _ in range(_LINES_BEFORE_ADDS):
                    yield file.readline()
        return
    stream = _file_system(spark, uri).open(_path(spark, uri))
    try:
        reader = spark._jvm.java.io.BufferedReader(spark._jvm.java.io.InputStreamReader(stream, "UTF-8"))
        for _ in range(_LINES_BEFORE_ADDS):
            yield reader.readLine() or ""
    finally:
        stream.close()


def _hadoop_conf(spark: Any) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _path(spark: Any, uri: str) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(hadoop_path(uri, spark))


def _file_system(spark: Any, uri: str) -> Any:
    return _path(spark, uri).getFileSystem(_hadoop_conf(spark))
