"""The keys of a stream's files in staging, all in one place (docs/design/ledger.md, "Files in staging").

Keys are relative to the root of the staging storage and begin with the name of the stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from airflow_provider_fds.errors import ConfigurationError

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]")
_NUMBERED: Final = re.compile(r"(\d{20})\.json")
_MANIFEST: Final = re.compile(r"manifests/[A-Za-z0-9._]+(?:/\d+)?/\d+-[A-Za-z0-9_-]+")
_SNAPSHOT: Final = re.compile(r"snapshots/[A-Za-z0-9._-]+")


#: Folder of the status files of all streams. No stream has this name, because none begins with a dot.
STATUS_FOLDER: Final = ".status"
#: Folder of what belongs to fleets, not to one stream.
FLEET_FOLDER: Final = ".fleets"


class ForeignKeyError(ValueError):
    """A ledger entry names a file that is not in the folder of its stream."""


def check_stream_name(name: str) -> None:
    """Raise ``ConfigurationError`` if ``name`` is not a valid stream name.

    A name is 1 to 100 of ``A-Z a-z 0-9 . _ -`` and does not begin with a dot: it becomes a folder in staging, and part
    of the key of an Airflow Variable.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"invalid stream name {name!r}: a name has 1 to 100 of the characters A-Z a-z 0-9 . _ - and does not "
            "begin with a dot, for example 'orders_to_bronze'"
        )


def numbered_name(n: int) -> str:
    """Return the file name of entry (or fold) ``n``: 20 digits, so that names sort like numbers."""
    return f"{n:020d}.json"


def status_key(name: str) -> str:
    """Return the key of the status file of a stream, a hint outside of the stream's folder."""
    return f"{STATUS_FOLDER}/{name}.json"


def fleet_folder(fleet: str) -> str:
    """Return the folder of a fleet's files; any text can be the name of a fleet."""
    plain = _OTHER.sub("_", fleet)
    return f"{FLEET_FOLDER}/{plain}" if plain == fleet else f"{FLEET_FOLDER}/{plain}-{crc32(fleet.encode()):08x}"


def parse_numbered_name(name: str) -> int | None:
    """Return the number of an entry's or fold's file name, or ``None`` for any other name."""
    match = _NUMBERED.fullmatch(name)
    return int(match.group(1)) if match else None


def check_manifest_key(key: str) -> None:
    """Raise ``ForeignKeyError`` unless ``key`` is a valid folder of a manifest; an empty key means no manifest."""
    if key and (_MANIFEST.fullmatch(key) is None or ".." in key.split("/")):
        raise ForeignKeyError(f"the manifest {key!r} is not a folder in 'manifests/'")


def check_snapshot_key(key: str) -> None:
    """Raise ``ForeignKeyError`` unless ``key`` is a valid file of a frozen snapshot."""
    if _SNAPSHOT.fullmatch(key) is None:
        raise ForeignKeyError(f"the snapshot {key!r} is not a file in 'snapshots/'")


def check_interval_name(interval: str) -> None:
    """Raise ``ForeignKeyError`` unless ``interval`` is ``<start>/<end>``; a folder is named after it."""
    start, _, end = interval.partition("/")
    if not start or not end or "/" in end:
        raise ForeignKeyError(f"the data interval {interval!r} is not <start>/<end>")


class _Below:
    """A key with a fixed place in the folder of its stream."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, folder: StreamFolder, _owner: object = None) -> str:
        return f"{folder.name}/{self._place}"


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """The keys of one stream in staging.

    Raises:
        ConfigurationError: The name is invalid.
    """

    name: str

    #: Folder of the entries.
    entries = _Below("ledger")
    #: Folder of the folds, which are hints.
    folds = _Below("ledger/_checkpoint")
    #: Folder of the objects that the self-test of put-if-absent writes and removes.
    probes = _Below("ledger/_probe")
    #: Folder of the frozen initial snapshots.
    snapshots = _Below("snapshots")
    #: Parent folder of the manifests (``batch/manifest/publish.py`` names them).
    manifests = _Below("manifests")
    #: Parent folder of an attempt's started marker and report (``batch/report.py`` names them).
    attempts = _Below("attempts")
    #: Parent folder of the jobs for Spark, which Spark only reads.
    jobs = _Below("jobs")
    #: Folder of the numbered lists of open incidents.
    alerts = _Below("alerts")
    #: The record of housekeeping's progress; a hint.
    cleaned = _Below("housekeeping.json")

    def __post_init__(self) -> None:
        check_stream_name(self.name)

    def entry(self, n: int) -> str:
        """Return the key of entry ``n``."""
        return f"{self.entries}/{numbered_name(n)}"

    def incidents(self, n: int) -> str:
        """Return the key of list ``n`` of the open incidents."""
        return f"{self.alerts}/{numbered_name(n)}"

    def fold(self, n: int) -> str:
        """Return the key of the fold of the entries 0 to ``n``, both inclusive."""
        return f"{self.folds}/{numbered_name(n)}"

    def probe(self, token: str) -> str:
        """Return the key that the self-test of put-if-absent writes and removes."""
        return f"{self.probes}/{token}"

    def below(self, key: str) -> str:
        """Return the key, from the root of staging, for a key that is relative to the stream's folder."""
        return f"{self.name}/{key}"

    def attempt_reports(self, epoch: int, batch_id: int) -> str:
        """Return the folder of the files of all attempts of one batch."""
        return f"{self.attempts}/{epoch}/{batch_id}"

    def job_specs(self, epoch: int | str, batch_id: int) -> str:
        """Return the folder of the jobs whose first batch this is; an interval has ``<interval>/<generation>``."""
        return f"{self.jobs}/{epoch}/{batch_id}"

    def fence_jobs(self, epoch: int) -> str:
        """Return the folder of the jobs that write the epoch's fence."""
        return f"{self.jobs}/{epoch}/fence"

    def fence_reports(self, epoch: int) -> str:
        """Return the folder of the files of all attempts of the epoch's fence."""
        return f"{self.attempts}/{epoch}/fence"
