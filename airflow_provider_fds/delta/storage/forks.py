"""Refuses a storage client with threads of its own in a forked process, where it would hang forever."""

from __future__ import annotations

import os

from airflow_provider_fds.errors import StorageError


class ForkGuard:
    """Remembers the process that first used a client.

    Args:
        client: Which client it is, for messages.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._first_user_pid: int | None = None

    def check(self, doing: str, root: str, key: str) -> None:
        """Raise if the client was first used before this process was forked.

        Args:
            doing: What is about to be done, such as ``"reading"``.
            root: URI of the table or folder.
            key: Path of the object below it.

        Raises:
            StorageError: The threads of the client are those of another process.
        """
        if self._first_user_pid is None:
            self._first_user_pid = os.getpid()
        elif self._first_user_pid != os.getpid():
            raise StorageError(
                f"{doing} {root}/{key}: this process was forked from process {self._first_user_pid}, which had "
                f"already used the {self._client} client; the client hangs in a forked process. Start processes "
                "with spawn, or use the storage in the parent only after the fork",
                table=root,
            )
