"""FDS's cache of JARs, driver modules and class archives: code that Spark runs, checked before it is used.

Folders must belong to this user or to root, and nobody else may write into them. JARs of the versions in :data:`PINNED`
must have the bytes that FDS was tested with. Other JARs are as the Maven repository delivered them (Ivy compares its
checksums), in a folder that only this user or root can write. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: SHA-256 of JARs by file name, as Ivy resolves them.
PINNED: Final[dict[str, str]] = {
    "delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SparkSetupError(Exception):
    """Something that Spark needs is not on this machine, or not as it has to be; the message says what to do."""


def default_cache_dir() -> Path:
    """Return where the cache is: ``$FDS_CACHE_DIR``, ``$XDG_CACHE_HOME/fds`` or ``~/.cache/fds``."""
    if own := os.environ.get("FDS_CACHE_DIR"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fds"


def make_folder(folder: Path) -> Path:
    """Make a folder of the cache that only this user can use, with its parents, and check it if it is there.

    Raises:
        SparkSetupError: As :func:`check_folder`.
        OSError: It cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(folder)
    return folder


def check_folder(folder: Path, *, is_private: bool = False) -> None:
    """Check a folder of the cache, if it is there. Rights that others need not have are taken from this user's own.

    Args:
        folder: The folder.
        is_private: Whether nobody else may read it either; then it must be this user's.

    Raises:
        SparkSetupError: It belongs to somebody else, or others can write into it.
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    me = os.geteuid()
    if found.st_uid != me and (is_private or found.st_uid != 0):
        raise SparkSetupError(
            f"the folder {folder} belongs to user {found.st_uid}, not to {me}, who starts Spark with it. Set "
            "FDS_CACHE_DIR ([fds] cache_dir) to a folder of this user"
        )
    refused = found.st_mode & (_OTHERS if is_private else _OTHERS_WRITE)
    if not refused:
        return
    if found.st_uid == me:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~refused)
    if folder.stat().st_mode & refused:
        raise SparkSetupError(
            f"the folder {folder} has the rights {stat.S_IMODE(found.st_mode):o}: others can write into it, and Spark "
            "runs what is in it. Take the rights away (chmod go-w), or set FDS_CACHE_DIR to another folder"
        )


def check_jar(jar: Path) -> None:
    """Compare a JAR with the SHA-256 of its version, if FDS knows it.

    Raises:
        SparkSetupError: It has another one, or belongs to another user than its folder may.
    """
    expected = PINNED.get(jar.name)
    if expected is None:
        return
    with jar.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise SparkSetupError(
            f"{jar} has the SHA-256 {found}, expected {expected}: it was changed or is damaged and is not used. "
            "Remove it, so that the next start fetches it again, and find out who can write to the folder"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; the operating system releases it when the process dies."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


__all__ = ["PINNED", "SparkSetupError", "check_folder", "check_jar", "default_cache_dir", "locked", "make_folder"]
