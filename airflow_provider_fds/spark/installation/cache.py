"""FDS's cache of JARs, driver modules and class archives: code that Spark runs, checked before use.

Folders must belong to this user or to root, and nobody else may write to them. JARs of the versions in :data:`PINNED`
must have the bytes that FDS was tested with. Other JARs are as the Maven repository delivered them (Ivy verifies its
checksums), in a folder that only this user or root can write to. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
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

#: SHA-256 of all JARs of a folder, by the folder's name, as Ivy resolves them.
PINNED_FOLDERS: Final[dict[str, dict[str, str]]] = {
    "hadoop-aws-3.5.0": {
        "org.apache.hadoop_hadoop-aws-3.5.0.jar": "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
        "org.wildfly.openssl_wildfly-openssl-2.2.5.Final.jar": (
            "71fb7932f99a727edb23c5a2cb8c6855ac7196fad41aa0669b3998e277165154"
        ),
        "software.amazon.awssdk_bundle-2.35.4.jar": "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
        "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.3.1.jar": (
            "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e"
        ),
    },
    "unitycatalog-hadoop-0.6.0": {
        "io.unitycatalog_unitycatalog-client-0.6.0.jar": (
            "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19"
        ),
        "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar": (
            "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150"
        ),
        "org.openapitools_jackson-databind-nullable-0.2.6.jar": (
            "bea692716d5b13a187874492045d4aa4d0c8f604ac661ea2366194e8be8785df"
        ),
    },
}

#: A larger JAR is read again only if it was changed since: Amazon's has 686 MB.
_READ_ALWAYS_BYTES: Final = 16 << 20

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SparkSetupError(Exception):
    """Something that Spark needs is missing on this machine or is not as required; the message says what to do."""


def default_cache_dir() -> Path:
    """Return the location of the cache: ``$FDS_CACHE_DIR``, ``$XDG_CACHE_HOME/fds`` or ``~/.cache/fds``.

    For a user without a home, a folder of their own among the temporary files.
    """
    if own := os.environ.get("FDS_CACHE_DIR"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "fds"
    try:
        return Path.home() / ".cache" / "fds"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"fds-{os.getuid()}"


def make_folder(folder: Path) -> Path:
    """Create a folder of the cache, with its parents, that only this user can use; check it if it exists.

    Raises:
        SparkSetupError: As :func:`check_folder`.
        OSError: It cannot be created.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(folder)
    return folder


def check_folder(folder: Path, *, is_private: bool = False) -> None:
    """Check a folder of the cache, if it exists. Removes needless permissions of others from this user's own folder.

    Args:
        folder: The folder.
        is_private: Whether nobody else may read it either; then it must belong to this user.

    Raises:
        SparkSetupError: It belongs to someone else, or others can write to it.
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    me = os.geteuid()
    if found.st_uid != me and (is_private or found.st_uid != 0):
        raise SparkSetupError(
            f"the folder {folder} belongs to user {found.st_uid}, not to {me}, who starts Spark from it. Set "
            "FDS_CACHE_DIR ([fds] cache_dir) to a folder of this user"
        )
    refused = found.st_mode & (_OTHERS if is_private else _OTHERS_WRITE)
    if not refused:
        return
    if found.st_uid == me:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~refused)
    if folder.stat().st_mode & refused:
        raise SparkSetupError(
            f"the folder {folder} has the permissions {stat.S_IMODE(found.st_mode):o}: other users can write to "
            "it, and Spark runs its files. Remove the permissions (chmod go-w), or set FDS_CACHE_DIR to another "
            "folder"
        )


def check_jar(jar: Path) -> None:
    """Compare a JAR with the SHA-256 of its version, if FDS knows it.

    Raises:
        SparkSetupError: The SHA-256 differs.
    """
    expected = PINNED.get(jar.name)
    if expected is not None:
        _compare(jar, expected)


def check_jar_folder(folder: Path, private: Path) -> None:
    """Compare the JARs of a folder with those of its version, if FDS knows them; none may be added or missing.

    Args:
        folder: The folder.
        private: A folder that nobody else can use, for records of large JARs that were verified.

    Raises:
        SparkSetupError: The set of JARs differs, or one has another SHA-256.
    """
    expected = PINNED_FOLDERS.get(folder.name)
    if expected is None:
        return
    names = {path.name for path in folder.iterdir()}
    if names != set(expected):
        raise SparkSetupError(
            f"the folder {folder} has unexpected or missing files ({', '.join(sorted(names ^ set(expected)))}): "
            "it was changed and is not used. Remove it so that the next start fetches it again, and find out who "
            "can write to it"
        )
    for name, sha256 in expected.items():
        jar = folder / name
        found = jar.stat()
        if found.st_size <= _READ_ALWAYS_BYTES:
            _compare(jar, sha256)
            continue
        # others cannot forge the time at which the kernel last changed the file
        note = f"{sha256} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        seen = make_folder(private) / f"{name}.checked"
        check_folder(private, is_private=True)
        if not seen.is_file() or seen.read_text() != note:
            _compare(jar, sha256)
            seen.write_text(note)


def _compare(jar: Path, expected: str) -> None:
    with jar.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise SparkSetupError(
            f"{jar} has the SHA-256 {found}, expected {expected}: it was changed or is damaged, so it is not "
            "used. Remove it so that the next start fetches it again, and find out who can write to the folder"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; the operating system releases it when the process dies."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
