"""Protocol and metadata of versions that were read before, so that a log need not be read back to its last checkpoint.

A known state is a hint: it counts only as long as the commit file of its version is the one that was read then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

# structs read these annotations at run time, when they are defined
from airflow_provider_fds.delta.actions import Metadata, Protocol  # noqa: TC001
from airflow_provider_fds.delta.names import commit_key

if TYPE_CHECKING:
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage

#: Up to this many commits after a known state are read without looking for a log checkpoint between.
NEAR: Final = 10
#: States of as many versions are remembered: before, in and after the commits that a run reads.
_REMEMBERED: Final = 3


class KnownState(msgspec.Struct, frozen=True, kw_only=True):
    """Protocol and metadata in force at a version, and what its commit file was like.

    Attributes:
        version: The version, whose own actions are included.
        etag: ETag of the commit file, as text; empty if the storage has no ETags.
        modified_ms: Its modification time, milliseconds since the epoch.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    size_bytes: int
    modified_ms: int
    etag: str = ""

    def belongs_to(self, found: ObjectMeta | None) -> bool:
        """Whether the commit file is the one that was read."""
        if found is None or found.size_bytes != self.size_bytes:
            return False
        # listing and object may give the time with different precision, so it counts only without ETags
        return _text(found.etag) == _text(self.etag) if self.etag else found.modified_ms == self.modified_ms


class KnownStates:
    """The states that one process knows of one table, the newest few that were added."""

    def __init__(self) -> None:
        self._states: list[KnownState] = []

    def up_to(self, version: int) -> KnownState | None:
        """Return the latest known state of a version up to ``version`` (inclusive), which may be outdated."""
        return max((s for s in self._states if s.version <= version), key=lambda s: s.version, default=None)

    def add(self, state: KnownState) -> None:
        """Remember a state, instead of an older one of its version."""
        self._states = [*(s for s in self._states if s.version != state.version), state][-_REMEMBERED:]

    def forget(self, state: KnownState) -> None:
        """Forget a state whose commit file is another one now."""
        self._states = [s for s in self._states if s is not state]

    def see(self, commit: Commit | ObjectMeta, version: int, protocol: Protocol, metadata: Metadata) -> None:
        """Remember the state after a commit that was just read."""
        self.add(
            KnownState(
                version=version,
                protocol=protocol,
                metadata=metadata,
                size_bytes=commit.size_bytes,
                modified_ms=commit.modified_ms,
                etag=_text(commit.etag),
            )
        )

    def verified(self, storage: Storage, version: int) -> KnownState | None:
        """Return what :meth:`up_to` returns if its commit is unchanged, which costs one HEAD; else ``None``."""
        known = self.up_to(version)
        if known is None:
            return None
        if known.belongs_to(storage.head(commit_key(known.version))):
            return known
        self.forget(known)
        return None


def _text(etag: object) -> str:
    # some stores quote it in one answer and not in another
    return "" if etag is None else str(etag).removeprefix("W/").strip('"')
