"""The protocol of a checkpoint's home, and the check that a written value can be read back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from airflow_provider_fds.errors import CheckpointError
from airflow_provider_fds.ledger.position import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many times to write a value that reads back as an older one before the older one counts as a shadow.
_WRITES = 3

_log: Final = logging.getLogger(__name__)


class CheckpointStore(Protocol):
    """A home of one stream's checkpoint.

    Writers may overtake each other: an older value does no harm, because the reader continues from it in the ledger.

    Attributes:
        home: Description of where the value is, for messages.
        discard: How a person removes the value, for messages.
        is_kept: Whether a value stays until it is overwritten. If not, a missing value means nothing.
    """

    is_kept: bool

    @property
    def home(self) -> str:
        """Description of where the value is, for messages."""

    @property
    def discard(self) -> str:
        """How a person removes the value, for messages."""

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or ``None`` if the home is empty.

        Raises:
            CheckpointError: The value is not a checkpoint, or hides the one that is written.
        """

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint and read it back.

        Raises:
            CheckpointError: Another value hides the one that was written.
        """


class StreamCheckpointStore(CheckpointStore, Protocol):
    """A store that a stream can name as its ``checkpoint``, see ``registry.py``."""

    @classmethod
    def for_stream(cls, stream: str, place: str) -> CheckpointStore:
        """Return the store of a stream.

        Args:
            stream: Name of the stream.
            place: What the user wrote after the colon; for a store without one, the URI of the stream's table.
        """


def write_and_read_back(
    checkpoint: Checkpoint,
    *,
    home: str,
    put: Callable[[str], None],
    get: Callable[[], str | None],
    shadow: str,
) -> None:
    """Write a checkpoint and check that a reader finds it, or a newer one of the same stream.

    If nothing is found, this is a warning: a missing value hides nothing.

    Args:
        checkpoint: The checkpoint to write.
        home: Description of where to write it.
        put: Writes the text.
        get: Reads the text; returns ``None`` if the home is empty or did not answer.
        shadow: What may hide a written value at this home, and what to do about it, for the message.

    Raises:
        CheckpointError: The value there belongs to another stream, is not a checkpoint, or stays an older one.
    """
    text = checkpoint.to_json()
    found: str | None = None
    for _ in range(_WRITES):
        put(text)
        found = get()
        if found is None:
            _log.warning(
                "%s was written at entry %d but could not be read back; without it, the next run takes the "
                "position from the ledger",
                home,
                checkpoint.n,
            )
            return
        if found == text:
            return
        try:
            other = Checkpoint.from_json(found, home=home)
        except CheckpointError:
            break
        if (other.stream, other.uuid) != (checkpoint.stream, checkpoint.uuid):
            break
        if other.n >= checkpoint.n:
            return
        # older: a slow writer came in between, or the written value is hidden; writing again tells which
    raise CheckpointError(
        f"{home} was written, but reading it returns another value: found {found!r}, expected {text!r}. The "
        f"stream would start from a wrong position. {shadow}"
    )
