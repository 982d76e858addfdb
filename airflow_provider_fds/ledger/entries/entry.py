"""An entry as it is written: JSON on one line, the same bytes for the same entry.

A kind of entry is one class in a module of this folder whose name ends in ``_entries``; no list names it.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from threading import Lock
from typing import Final, Union

import msgspec

from airflow_provider_fds import __version__
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import LedgerError, UnreadableEntryError
from airflow_provider_fds.ledger import entries
from airflow_provider_fds.ledger.entries.action import KINDS, BaseAction
from airflow_provider_fds.ledger.layout import ForeignKeyError
from airflow_provider_fds.ledger.owner import Actor  # noqa: TC001  # the struct reads it when it is defined

#: Newest version of the entries' JSON that is read. An entry has the oldest one whose readers do not misread it.
ENTRY_FORMAT: Final = 2


for _module in iter_modules(entries.__path__, f"{entries.__name__}."):
    if _module.name.endswith("_entries"):
        import_module(_module.name)


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What every entry has, whatever its kind."""

    format: int = 1
    n: int
    id: str
    time: str
    writer: str = __version__
    actor: Actor
    request_id: str | None = None


class _Stored(_Fields, frozen=True, kw_only=True):
    """An entry whose action is not decoded yet: which kinds there are is known only once all of them are defined."""

    action: msgspec.Raw


class Entry(_Fields, frozen=True, kw_only=True):
    """One decision, written once.

    Attributes:
        n: Number of the entry; numbers start at 0 and have no gaps.
        id: Random; lets a writer whose response was lost recognise its own entry.
        time: When it was written, by the writer's clock: ISO 8601, UTC, milliseconds.
        writer: Version of FDS that wrote it.
        request_id: Name of a person's request; the same name means the same request.
    """

    action: BaseAction

    def __post_init__(self) -> None:
        self.action.check_complete()

    def describe_writing(self) -> str:
        """Return in words when it was written, and by whom."""
        ago = datetime.now(UTC) - datetime.fromisoformat(self.time)
        return f"at {self.time} ({format_duration(max(timedelta(), ago))} ago) by {self.actor.describe()}"

    def to_json(self) -> bytes:
        """Return the entry as its bytes in staging."""
        return _ENCODER.encode(self)

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Entry:
        """Read an entry; ``where`` is its URI, for the message.

        Raises:
            UnreadableEntryError: A later format, an unknown action, or not an entry at all. An entry is never passed
                over, because it may forbid what comes next.
        """
        try:
            stored = _STORED.decode(data)
            fields = {name: getattr(stored, name) for name in _Fields.__struct_fields__}
            entry = cls(**fields, action=_decoder(tuple(KINDS.values())).decode(stored.action))
        except DAMAGE as error:
            raise _unreadable(data, where, error) from error
        if not 1 <= entry.format <= ENTRY_FORMAT:
            raise _other_format(data, entry.format, entry.writer, where)
        return entry


class _Header(msgspec.Struct):
    format: int
    writer: str = "unknown"


_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_STORED: Final = msgspec.json.Decoder(_Stored)
_HEADER: Final = msgspec.json.Decoder(_Header)
_PREPARING: Final = Lock()


def _decoder(kinds: tuple[type[BaseAction], ...]) -> msgspec.json.Decoder[BaseAction]:
    """Return the decoder of these kinds, which chooses among them by their tags."""
    # a thread that uses the types while msgspec prepares them in another one ends the process (SIGSEGV)
    with _PREPARING:
        return _new_decoder(kinds)


@lru_cache(maxsize=4)
def _new_decoder(kinds: tuple[type[BaseAction], ...]) -> msgspec.json.Decoder[BaseAction]:
    return msgspec.json.Decoder(Union[kinds])  # noqa: UP007  # the kinds are known at run time only


def digest_of(data: bytes) -> str:
    """Return the digest of an entry's bytes: the first 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def iso_time(time: datetime) -> str:
    """Format a time with a zone for entries: ISO 8601, UTC, milliseconds. The strings sort like the times."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _other_format(data: bytes, found: int, writer: str, where: str) -> LedgerError:
    return UnreadableEntryError(
        f"ledger entry {where} has format {found}, written by FDS {writer}, but this FDS {__version__} reads "
        f"formats up to {ENTRY_FORMAT}. Install FDS {writer} or newer wherever this stream runs",
        data=data,
        is_newer=True,
    )


def _unreadable(data: bytes, where: str, error: Exception) -> LedgerError:
    try:
        header = _HEADER.decode(data)
    except DAMAGE:
        return UnreadableEntryError(
            f"ledger entry {where} is damaged: its {len(data)} bytes are not an entry ({describe(error)}). "
            "Entries are written whole and never changed: restore the file from a copy of the staging folder",
            data=data,
        )
    if not 1 <= header.format <= ENTRY_FORMAT:
        return _other_format(data, header.format, header.writer, where)
    if isinstance(error.__cause__, ForeignKeyError):
        return UnreadableEntryError(
            f"ledger entry {where} cannot be used: {error.__cause__}. FDS does not write such an entry, so it was "
            "edited: restore the file from a copy of the staging folder, and check who can write to it",
            data=data,
        )
    if not _is_newer(header.writer):
        # this version can read what it, or an earlier version, wrote
        return UnreadableEntryError(
            f"ledger entry {where} is damaged: {describe(error)}. Entries are written whole and never changed; restore "
            "the file from a copy of the staging folder",
            data=data,
        )
    return UnreadableEntryError(
        f"ledger entry {where}, written by FDS {header.writer}, cannot be read by this FDS {__version__}: {error}. "
        "FDS never skips an entry, because it may forbid later ones. Install the version that wrote it, or a newer one",
        data=data,
        is_newer=True,
    )


def _is_newer(writer: str) -> bool:
    """Return whether a version of FDS is later than this one, or cannot be compared with it."""
    try:
        found, own = (tuple(int(part) for part in version.split(".")) for version in (writer, __version__))
    except ValueError:
        return writer != __version__
    return found > own
