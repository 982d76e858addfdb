"""The fold of a ledger: number and digest of the last entry read, and the state that all entries up to it result in."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.reader.known_states import KnownState  # noqa: TC001  # read when the struct is defined
from airflow_provider_fds.ledger.entries.entry import digest_of
from airflow_provider_fds.ledger.entries.protocol import evolve
from airflow_provider_fds.ledger.position import Checkpoint, describe_checkpoint
from airflow_provider_fds.ledger.state import StreamState  # noqa: TC001  # read when the struct is defined

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.entries.entry import Entry

#: Raised when the same entries result in another state than before, or when an older reader would lose a part of it.
FOLD_FORMAT: Final = 11

#: Formats whose states are those that the entries result in today.
_READ: Final = (8, 9, 10, FOLD_FORMAT)


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the entries 0 to ``n``.

    In staging it is a hint that avoids reading all entries: it may be missing, and counts only if entry ``n`` has its
    digest.

    Attributes:
        n: Number of the last entry, -1 for an empty ledger.
        digest: Digest of that entry, empty for an empty ledger.
        source: The state of the source table at a version that the writer of the fold has read, so that the next run
            reads only the commits after it. It is a hint, and does not result from the entries.
    """

    format: int = FOLD_FORMAT
    n: int
    digest: str
    state: StreamState
    source: KnownState | None = None

    def plus(self, entry: Entry, data: bytes) -> Fold:
        """Return the fold with one more entry, whose bytes are ``data``."""
        return Fold(n=entry.n, digest=digest_of(data), state=evolve(self.state, entry), source=self.source)

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint of a ledger that is not empty."""
        state, last = self.state, self.state.last_committed
        rows = None if last is None or last.epoch != state.epoch else last.rows
        if state.reads_by_interval:
            shown = f"reads {state.table} by data intervals, each with a position of its own"
        else:
            shown = describe_checkpoint(state.table, state.position, moved_at=state.moved_at, rows=rows)
        return Checkpoint(
            position=shown,
            stream=state.name,
            uuid=state.uuid,
            deployment=state.deployment,
            n=self.n,
            digest=self.digest,
            epoch=state.epoch,
            batch_id=state.last_batch_id,
            offset=state.position,
        )

    def to_json(self) -> bytes:
        """Return the fold as its bytes in staging."""
        data = _ENCODER.encode(self)
        return _ENCODER.encode(_Stored(sum=digest_of(data), fold=msgspec.Raw(data)))

    @classmethod
    def from_json(cls, data: bytes) -> Fold | None:
        """Read a fold; ``None`` if it has another format or is damaged, since it is only a hint."""
        try:
            stored = _STORED.decode(data)
            if digest_of(bytes(stored.fold)) != stored.sum:
                raise ValueError("its content does not match its checksum")
            fold = _DECODER.decode(stored.fold)
        except DAMAGE as error:
            _log.warning("A fold of the ledger cannot be read and is not used: %s", describe(error))
            return None
        return fold if fold.format in _READ else None


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A fold in staging: its bytes and their digest, which detects a slightly damaged state."""

    sum: str
    fold: msgspec.Raw


_log: Final = logging.getLogger(__name__)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(Fold)
_STORED: Final = msgspec.json.Decoder(_Stored)
