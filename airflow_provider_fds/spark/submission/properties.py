"""Settings that nobody else may see, in a properties file: command-line arguments are visible to all users.

Standard library only.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.spark.installation.cache import SparkSetupError, check_folder, make_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEFAULTS = "spark-defaults.conf"


def properties_text(given: str | None, spark_home: Path | None, environ: Mapping[str, str]) -> str:
    """Return what spark-submit would read without FDS: the user's properties file, else ``spark-defaults.conf``.

    A properties file replaces the defaults, so FDS's file must contain them. (Spark 4 has ``--load-spark-defaults`` for
    this, Spark 3.5 does not.)

    Args:
        given: The user's ``properties_file``.
        spark_home: The Spark that is started, if known.
        environ: The environment it is started in.

    Raises:
        SparkSetupError: The user's file cannot be read.
    """
    if given:
        try:
            return Path(given).read_text(encoding="utf-8")
        except OSError as e:
            raise SparkSetupError(f"properties_file {given} cannot be read: {e.strerror}") from e
    folder = environ.get("SPARK_CONF_DIR")
    if folder is None and spark_home is not None:
        folder = str(spark_home / "conf")
    try:
        return (Path(folder) / _DEFAULTS).read_text(encoding="utf-8") if folder else ""
    except OSError:
        return ""


def property_names(text: str) -> set[str]:
    """Return the keys of a properties file, as Java reads them."""
    lines = re.sub(r"\\\r?\n[ \t]*", "", text).splitlines()
    found = (re.match(r"\s*(?![#!])((?:\\.|[^\s=:\\])+)", line) for line in lines)
    return {re.sub(r"\\(.)", r"\1", match[1]) for match in found if match}


@contextmanager
def private_file(
    folder: Path, secret: Mapping[str, str], rest: str, over: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """Write a properties file that only this user can read, and remove it at the end.

    Also removes files that killed processes of this machine left.

    Args:
        folder: The file is written to ``<folder>/private``.
        secret: The settings. Values for the same keys in ``rest`` take precedence.
        rest: Text of the properties file that this one replaces.
        over: Settings that take precedence over those in ``rest``.

    Raises:
        SparkSetupError: The folder cannot be written to, or a value contains a line break.
    """
    host = re.sub(r"\W", "_", socket.gethostname())
    private = folder / "private"
    text = f"{_lines(secret)}{rest}"
    if over:
        text = f"{text}\n{_lines(over)}" if rest else f"{text}{_lines(over)}"
    try:
        make_folder(folder)
        private.mkdir(mode=0o700, exist_ok=True)
        check_folder(private, is_private=True)
        _sweep(private, host)
        # created with mode 0600
        number, name = tempfile.mkstemp(prefix=f"{host}-{os.getpid()}-", suffix=".properties", dir=private)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as e:
        raise SparkSetupError(
            f"cannot write Spark's private settings into {private} ({e}): set FDS_CACHE_DIR to a writable folder"
        ) from e
    path = Path(name)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _sweep(private: Path, host: str) -> None:
    for left in private.glob(f"{host}-*.properties"):
        pid = left.name.removeprefix(f"{host}-").partition("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            left.unlink(missing_ok=True)
        except (OSError, ValueError):
            continue


def _lines(settings: Mapping[str, str]) -> str:
    for key, value in settings.items():
        if re.search(r"[\r\n]", value) and is_secret(key, value):
            raise SparkSetupError(
                f"the value for {key} contains a line break. Correct it in the Airflow connection or in conf"
            )
    return "".join(f"{_escaped_key(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped_key(key: str) -> str:
    return re.sub(r"([\\\s:=#!])", r"\\\1", key)


def _escaped(value: str) -> str:
    """Return a value escaped for a properties file: backslashes, line breaks and a leading space."""
    doubled = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return f"\\{doubled}" if doubled.startswith((" ", "\t")) else doubled
