"""The ledger of a stream in one file, to continue the stream from another staging folder.

The file is a ZIP archive of the entries as they are, and of the frozen snapshot if the epoch began with one. A list of
contents has the digest of each, so a truncated or damaged file is noticed before anything is written.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import msgspec

from airflow_provider_fds import __version__
from airflow_provider_fds.errors import ConfigurationError, LedgerError, UnreadableEntryError
from airflow_provider_fds.ledger.entries.entry import digest_of
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.layout import (
    StreamFolder,
    check_snapshot_key,
    check_stream_name,
    numbered_name,
    parse_numbered_name,
)
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState

#: Version of the file. It is raised when a reader of the old format would misread the new one.
ARCHIVE_FORMAT: Final = 1

_CONTENTS: Final = "contents.json"
_ENTRY: Final = re.compile(r"ledger/\d{20}\.json")
_CHUNK_BYTES: Final = 1 << 20

#: What a damaged file raises when it is read.
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    msgspec.MsgspecError,
    KeyError,
    ValueError,
)


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive has.

    Attributes:
        writer: Version of FDS that wrote it.
        stream: Name of the stream.
        uuid: Its random id.
        table: URI of its source table.
        deployment: The installation that owned it.
        n: Number of the last entry.
        digest: Digest of that entry.
        files: SHA-256 of each file, by its key below the stream's folder.
    """

    format: int = ARCHIVE_FORMAT
    writer: str = __version__
    stream: str
    uuid: str
    table: str
    deployment: str
    n: int
    digest: str
    files: dict[str, str]


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The list of contents in the file: its bytes and their digest."""

    sum: str
    contents: msgspec.Raw


class _Header(msgspec.Struct):
    format: int
    writer: str = "unknown"


def write_archive(ledger: Ledger, path: Path) -> Contents:
    """Write the ledger, as last read, to a new file, and return what was written.

    Args:
        ledger: The ledger, read to its head.
        path: A local file that does not exist. It appears when it is complete, readable for its owner only, because a
            ledger names people, tables and sinks.

    Raises:
        ConfigurationError: The file exists.
        LedgerError: The state depends on an entry that cannot be read, or a file is missing in staging.
    """
    if path.exists():
        raise _taken(path)
    _refuse_unreadable(ledger)
    state, folder, storage = ledger.state, ledger.folder, ledger.storage
    names = (meta.key.rpartition("/")[2] for meta in storage.list_after(folder.entries))
    numbers = [n for n in map(parse_numbered_name, names) if n is not None and n <= ledger.n]
    keys = [f"ledger/{numbered_name(n)}" for n in numbers]
    keys += _snapshots(state, storage, folder)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            files = {key: _add(archive, storage, folder.below(key), key) for key in keys}
            contents = Contents(
                stream=state.name,
                uuid=state.uuid,
                table=state.table,
                deployment=state.deployment,
                n=ledger.n,
                digest=digest_of(storage.get(folder.entry(ledger.n))[0]),
                files=files,
            )
            data = msgspec.json.encode(contents)
            stored = _Stored(sum=hashlib.sha256(data).hexdigest(), contents=msgspec.Raw(data))
            archive.writestr(_CONTENTS, msgspec.json.encode(stored))
        # unlike a rename, a link fails if the file exists by now
        os.link(partial, path)
    except FileExistsError:
        raise _taken(path) from None
    finally:
        partial.unlink(missing_ok=True)
    return contents


def _snapshots(state: StreamState, storage: Storage, folder: StreamFolder) -> list[str]:
    """Return the keys of the frozen snapshot of the open epoch, or of the one that a requested epoch may begin in."""
    if state.phase != "requested":
        return [] if state.snapshot is None else [state.snapshot.key]
    # a fork that has not begun has no epoch before
    before = state.origin if state.closed is None else state.closed
    snapshot = None if before is None else before.snapshot
    # most requests begin after it, so it may be gone
    if snapshot is None or storage.head(folder.below(snapshot.key)) is None:
        return []
    return [snapshot.key]


def _taken(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path} already exists and is not overwritten. Name a file that does not exist")


def _refuse_unreadable(ledger: Ledger) -> None:
    """Refuse a ledger whose state is only known from a fold, which is a hint and is not in the file."""
    unreadable: UnreadableEntryError | None = None
    expected = 0
    for found in ledger.readable():
        if isinstance(found, UnreadableEntryError):
            unreadable = found
        elif isinstance(found.action, Created):
            # the state after it depends on no earlier entry
            unreadable = None
        elif found.n != expected:
            unreadable = UnreadableEntryError(f"ledger entry {expected} is missing", n=expected)
        expected = found.n + 1
    if unreadable is not None:
        raise LedgerError(
            f"stream {ledger.state.name!r} cannot be exported: {unreadable}. Run `fds recover {ledger.state.name}` "
            "first",
            table=ledger.state.table,
            reason=Reason.LEDGER_UNREADABLE,
        )


def _add(archive: zipfile.ZipFile, storage: Storage, key: str, name: str) -> str:
    """Add an object, streamed; return the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    try:
        with storage.open(key) as source, archive.open(name, "w", force_zip64=True) as member:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                member.write(chunk)
    except FileNotFoundError:
        raise LedgerError(f"{storage.uri}/{key} is missing. Restore it from a copy of the staging folder") from None
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class LedgerArchive:
    """An archive whose contents have been verified.

    Attributes:
        path: The file.
        contents: What it has.
        sha256: Digest of the list of contents, which stands for all of them.
    """

    path: Path
    contents: Contents
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and verify a file.

        Raises:
            ConfigurationError: It is missing, truncated or damaged, no archive, or of another format.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                stored = msgspec.json.decode(archive.read(_CONTENTS), type=_Stored)
                data = bytes(stored.contents)
                if hashlib.sha256(data).hexdigest() != stored.sum:
                    raise ValueError("its list of contents does not match its digest")
                _refuse_other_format(path, data)
                contents = msgspec.json.decode(data, type=Contents)
                _verify(archive, contents)
        except FileNotFoundError:
            raise ConfigurationError(f"there is no file {path}") from None
        except ConfigurationError:
            raise
        except _DAMAGE as error:
            raise ConfigurationError(
                f"{path} is damaged, or is not an exported stream: {error}. Nothing was imported. Copy the file again, "
                "or export the stream again"
            ) from error
        return cls(path, contents, stored.sum)

    def put_into(self, storage: Storage) -> int:
        """Write what is missing in a staging folder, and return the number of entries written.

        The oldest entry is written last, so until all are there the stream cannot be read. A repeated call completes an
        interrupted one. Entries that the folder has must be the same: then the file continues them, in their order, so
        that nobody else who continues them at this moment gets between.

        Raises:
            LedgerError: The folder has another stream of this name, or other entries of this one. Nothing was written.
        """
        folder = StreamFolder(self.contents.stream)
        written, is_begun = 0, False
        with zipfile.ZipFile(self.path) as archive:
            for meta in storage.list_after(folder.entries):
                key = f"ledger/{meta.key.rpartition('/')[2]}"
                if key not in self.contents.files or storage.get(folder.below(key))[0] != archive.read(key):
                    self._refuse(storage, key)
                is_begun = is_begun or meta.key == folder.entry(0)
            entries = sorted((key for key in self.contents.files if _ENTRY.fullmatch(key)), reverse=not is_begun)
            for key in self.contents.files.keys() - set(entries):
                with archive.open(key) as source:
                    storage.put_file(folder.below(key), source)
            for key in entries:
                if storage.put_if_absent(folder.below(key), data := archive.read(key)):
                    written += 1
                elif storage.get(folder.below(key))[0] != data:
                    self._refuse(storage, key)
        return written

    def _refuse(self, storage: Storage, key: str) -> None:
        """Refuse an entry in staging that the file does not have, unless it comes after all that the file has."""
        n = parse_numbered_name(key.removeprefix("ledger/"))
        if n is None or n > self.contents.n:
            return
        name = self.contents.stream
        raise LedgerError(
            f"{storage.uri} has a stream {name!r} whose ledger entry {n} is not the one in {self.path}. It is not "
            "overwritten: use another staging folder, or, if that stream is no longer needed, move its folder away",
            table=self.contents.table,
            reason=Reason.STREAM_ALREADY_BEGUN,
        )


def _refuse_other_format(path: Path, contents: bytes) -> None:
    header = msgspec.json.decode(contents, type=_Header)
    if header.format != ARCHIVE_FORMAT:
        raise ConfigurationError(
            f"{path} has format {header.format}, written by FDS {header.writer}, but this FDS {__version__} reads "
            f"format {ARCHIVE_FORMAT}. Install FDS {header.writer} or newer"
        )


def _verify(archive: zipfile.ZipFile, contents: Contents) -> None:
    """Compare the digests; refuse a key that is not one of a ledger, because it becomes a path in staging."""
    check_stream_name(contents.stream)
    last = f"ledger/{numbered_name(contents.n)}"
    if last not in contents.files:
        raise ValueError(f"entry {contents.n} is missing")
    for key, digest in contents.files.items():
        if _ENTRY.fullmatch(key) is None:
            check_snapshot_key(key)
        found = hashlib.sha256()
        with archive.open(key) as source:
            while chunk := source.read(_CHUNK_BYTES):
                found.update(chunk)
        if found.hexdigest() != digest:
            raise ValueError(f"{key} does not match its digest")
    if digest_of(archive.read(last)) != contents.digest:
        raise ValueError(f"entry {contents.n} does not match its digest")
