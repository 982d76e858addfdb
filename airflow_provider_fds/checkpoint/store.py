"""What every home of a checkpoint does, and how it is found out whether a written value is there to stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_provider_fds.errors import CheckpointError
from airflow_provider_fds.ledger.position import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

#: A value that is older than the one written is written so many times before it is called a shadow.
_WRITES = 3


class CheckpointStore(Protocol):
    """A home of one stream's checkpoint.

    Writers may overtake each other: an older value does no harm, the ledger is read on from it.

    Attributes:
        home: Where the value is, in words, for messages.
        discard: How a person removes the value, for messages.
        is_kept: Whether a value stays until it is overwritten. If not, that there is none means nothing.
    """

    is_kept: bool

    @property
    def home(self) -> str:
        """Where the value is, in words, for messages."""

    @property
    def discard(self) -> str:
        """How a person removes the value, for messages."""

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, ``None`` if there is none.

        Raises:
            CheckpointError: What is there is no checkpoint, or hides the one that is written.
        """

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint and read it back.

        Raises:
            CheckpointError: Another value hides the one that was written.
        """


def write_and_read_back(
    checkpoint: Checkpoint,
    *,
    home: str,
    put: Callable[[str], None],
    get: Callable[[], str | None],
    shadow: str,
) -> bool:
    """Write a checkpoint and make sure that whoever reads the home finds it, or a newer one of the same stream.

    Args:
        checkpoint: What to write.
        home: Where, in words.
        put: Writes the text.
        get: Reads the text, ``None`` if there is none (or the home did not answer).
        shadow: What may hide a written value at this home, and what to do, for the message.

    Returns:
        Whether it was read back; ``False`` if nothing was found, which hides nothing.

    Raises:
        CheckpointError: The value there is of another stream, or no checkpoint, or stays an older one.
    """
    text = checkpoint.to_json()
    found: str | None = None
    for _ in range(_WRITES):
        put(text)
        found = get()
        if found is None:
            return False
        if found == text:
            return True
        try:
            other = Checkpoint.from_json(found, home=home)
        except CheckpointError:
            break
        if (other.stream, other.uuid) != (checkpoint.stream, checkpoint.uuid):
            break
        if other.n >= checkpoint.n:
            return True
        # older: a slow writer came in between, or what was written is hidden; writing again tells them apart
    raise CheckpointError(
        f"{home} was written, but another value is read back: found {found!r}, expected {text!r}. The stream would "
        f"start from a wrong position. {shadow}"
    )


__all__ = ["CheckpointStore", "write_and_read_back"]
