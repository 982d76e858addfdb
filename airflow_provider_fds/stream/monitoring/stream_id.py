"""The id of a stream among those of all staging folders, as in the address of its page."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

_ID_DIGITS: Final = 8


class StreamId(NamedTuple):
    """A stream among those of all staging folders.

    Attributes:
        staging: The first digits of the SHA-256 of the staging folder's URI.
        name: Name of the stream.
    """

    staging: str
    name: str

    @classmethod
    def of(cls, staging_uri: str, name: str) -> StreamId:
        """Return the id of a stream."""
        return cls(staging_digest(staging_uri), name)

    @classmethod
    def parse(cls, text: str) -> StreamId | None:
        """Return the id from its text, ``None`` if it is not one."""
        staging, dash, name = text.partition("-")
        return cls(staging, name) if dash and len(staging) == _ID_DIGITS and name else None

    def __str__(self) -> str:
        return f"{self.staging}-{self.name}"


def staging_digest(staging_uri: str) -> str:
    """Return the part of a stream's id that stands for its staging folder."""
    return hashlib.sha256(staging_uri.encode()).hexdigest()[:_ID_DIGITS]
