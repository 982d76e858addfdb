"""Commands of ``fds`` that a message tells a person to type: the names of stream and staging folder in them."""

from __future__ import annotations

import re
import shlex
from typing import Final

#: A command that a message tells a person to type, with its arguments.
_COMMAND: Final = re.compile(r"`fds (?:admin [a-z-]+|(?!admin\b)[a-z-]+) [^`]+`")


def with_stream(message: str, stream: str) -> str:
    """Put the name of the stream into the commands of ``fds`` in a message that say ``STREAM``."""
    return _COMMAND.sub(lambda command: re.sub(r"\bSTREAM\b", lambda _: stream, command[0]), message)


def with_staging(message: str, staging: str) -> str:
    """Add the staging folder to a message that names commands of ``fds``.

    Args:
        message: A message or a reason for people.
        staging: URI of the folder.
    """
    if _COMMAND.search(message) is None or "--staging" in message:
        return message
    return f"{message}\n(`fds` commands: {staging_option(staging)})"


def staging_option(staging: str) -> str:
    """Return the option with which a command finds the staging folder with that URI."""
    return f"--staging {shlex.quote(staging)}"
