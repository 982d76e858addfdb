"""The checkpoint in a local file: for the command line, and for notebooks."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from airflow_provider_fds.checkpoint.store import write_and_read_back
from airflow_provider_fds.errors import AccessDeniedError, StorageError
from airflow_provider_fds.ledger.position import Checkpoint


class FileCheckpointStore:
    """A file that holds one checkpoint as JSON; the file is always complete, even after a crash.

    Args:
        path: The file. Its folder is created if it does not exist.

    Raises:
        AccessDeniedError: The file cannot be read or written.
        StorageError: The file system failed.
    """

    is_kept = True

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).absolute()

    @classmethod
    def for_stream(cls, stream: str, place: str) -> FileCheckpointStore:  # noqa: ARG003
        """Return the store of a stream with the checkpoint ``file:<place>``."""
        return cls(place)

    @property
    def home(self) -> str:
        """Description of the file, for messages."""
        return f"checkpoint file {self._path}"

    @property
    def discard(self) -> str:
        """How to remove the file, for messages."""
        return f"remove {self._path}"

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or ``None`` if the file does not exist."""
        text = self._get()
        return None if text is None else Checkpoint.from_json(text, home=self.home)

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file atomically."""
        write_and_read_back(
            checkpoint,
            home=self.home,
            put=self._put,
            get=self._get,
            shadow="Another program writes this file; give each stream its own file",
        )

    def _get(self) -> str | None:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", error) from error

    def _put(self, text: str) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("x", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed("written", error) from error
        # without it a crash of the machine may undo the rename; some file systems cannot sync a folder
        with suppress(OSError):
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _failed(self, doing: str, error: OSError) -> StorageError:
        kind = AccessDeniedError if isinstance(error, PermissionError) else StorageError
        return kind(
            f"{self.home} cannot be {doing}: {error.strerror or error}. Set a path in a folder that this user can "
            "write to. Nothing is lost: the ledger has the position too"
        )
