"""The columns that the rows of a batch have besides the source's own."""

from __future__ import annotations

from typing import Final

#: Version of the source that a row comes from.
COMMIT_VERSION: Final = "_commit_version"
#: Time of that version.
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
#: What happened to a row: ``insert``, ``delete``, ``update_preimage``, ``update_postimage`` (change data feed).
CHANGE_TYPE: Final = "_change_type"


__all__ = ["CHANGE_TYPE", "COMMIT_TIMESTAMP", "COMMIT_VERSION"]
