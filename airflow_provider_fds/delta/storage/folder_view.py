"""A folder seen through rules of one's own: what a view does not decide itself, the folder answers."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage


class FolderView:
    """A :class:`~airflow_provider_fds.delta.storage.storage.Storage` that does as another one does.

    Args:
        folder: The other one.
    """

    def __init__(self, folder: Storage) -> None:
        self.uri = folder.uri
        self.is_file_system = folder.is_file_system
        self._folder = folder

    def head(self, key: str) -> ObjectMeta | None:
        """As the folder does."""
        return self._folder.head(key)

    async def head_async(self, key: str) -> ObjectMeta | None:
        """As the folder does."""
        return await self._folder.head_async(key)

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """As the folder does."""
        return self._folder.list_after(folder, after)

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """As the folder does."""
        return self._folder.get(key)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """As the folder does."""
        return self._folder.stream(key, chunk_bytes)

    def open(self, key: str) -> BinaryIO:
        """As the folder does."""
        return self._folder.open(key)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """As the folder does."""
        return self._folder.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        """As the folder does."""
        self._folder.put(key, data)

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """As the folder does."""
        self._folder.put_file(key, file)

    def delete(self, key: str) -> None:
        """As the folder does."""
        self._folder.delete(key)

    def list_folders(self, folder: str) -> list[str]:
        """As the folder does."""
        return self._folder.list_folders(folder)

    def delete_folder(self, folder: str) -> None:
        """As the folder does."""
        self._folder.delete_folder(folder)

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        """As the folder does."""
        self._folder.remove_unfinished(folder, before_ms)

    def beside(self, uri: str) -> Storage | None:
        """As the folder does."""
        return self._folder.beside(uri)
