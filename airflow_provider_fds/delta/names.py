"""Names of the files in ``_delta_log`` (Delta protocol, "File Types").

A name must match one of the forms below in full; otherwise it is ignored. Backups, temporary files, Hadoop checksums,
``<v>.crc`` and ``<x>.<y>.compacted.json`` are in the same folder and must not be taken for commits.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

#: Folder of the transaction log below the table's root.
LOG_FOLDER: Final = "_delta_log"

#: Key of the pointer to a checkpoint, a hint that may be stale, torn or wrong.
LAST_CHECKPOINT: Final = f"{LOG_FOLDER}/_last_checkpoint"

_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(
    r"(?P<version>[0-9]{20})\.checkpoint\."
    r"(?:(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.|(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.)?"
    r"(?P<format>parquet|json)"
)


class CheckpointName(NamedTuple):
    """The parts of a checkpoint file's name.

    ``kind`` is ``"classic"`` (one file, whose content may still be a v2 checkpoint), ``"multipart"`` (``part`` of
    ``parts``, both counted from 1; useless unless all exist) or ``"v2"`` (named by UUID, with sidecars).
    """

    version: int
    kind: Literal["classic", "multipart", "v2"]
    part: int
    parts: int
    format: Literal["parquet", "json"]


def commit_name(version: int) -> str:
    """Return the name of the commit file of ``version``, without folder.

    >>> commit_name(7)
    '00000000000000000007.json'
    """
    return f"{version:020d}.json"


def commit_key(version: int) -> str:
    """Return the key of the commit file of ``version`` relative to the table's root."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def parse_commit_name(name: str) -> int | None:
    """Return the version of a commit file's name, or ``None`` for any other name.

    >>> parse_commit_name("00000000000000000007.json")
    7
    >>> parse_commit_name("00000000000000000005.00000000000000000007.compacted.json") is None
    True
    """
    match = _COMMIT.fullmatch(name)
    return None if match is None else int(match[1])


def parse_checkpoint_name(name: str) -> CheckpointName | None:
    """Parse a checkpoint file's name; ``None`` for any other name."""
    match = _CHECKPOINT.fullmatch(name)
    if match is None:
        return None
    version = int(match["version"])
    if match["uuid"] is not None:
        return CheckpointName(version, "v2", 1, 1, "json" if match["format"] == "json" else "parquet")
    if match["format"] != "parquet":
        return None
    if match["part"] is None:
        return CheckpointName(version, "classic", 1, 1, "parquet")
    part, parts = int(match["part"]), int(match["parts"])
    return CheckpointName(version, "multipart", part, parts, "parquet") if 1 <= part <= parts else None
