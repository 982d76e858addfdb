"""A storage that counts its requests as an object store would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_fds.stream import connected_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage


class Request(NamedTuple):
    """One request: the operation, the folder, and the object in it."""

    root: str
    kind: str
    key: str


class CountingStorage:
    """Passes every access on to another storage, and records it; a listing of up to 1,000 names counts once."""

    def __init__(self, storage: Storage, requests: list[Request]) -> None:
        self._storage = storage
        self._requests = requests
        self.uri = storage.uri
        self.is_file_system = storage.is_file_system

    def _counted(self, kind: str, key: str) -> None:
        self._requests.append(Request(self.uri, kind, key))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        access = getattr(self._storage, name)

        def counted(key: str, *args: Any, **kwargs: Any) -> Any:
            self._counted(name, key)
            return access(key, *args, **kwargs)

        return counted

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Count one listing."""
        self._counted("list_after", folder)
        return self._storage.list_after(folder, after)

    def beside(self, uri: str) -> CountingStorage | None:
        """Count what is asked of the folder beside."""
        found = self._storage.beside(uri)
        return None if found is None else CountingStorage(found, self._requests)


def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Return the list in which all requests of streams to their tables and to staging are recorded from now on."""
    requests: list[Request] = []
    for name in ("open_storage", "open_place"):
        opened = getattr(connected_stream, name)
        monkeypatch.setattr(
            connected_stream, name, lambda *given, opened=opened: CountingStorage(opened(*given), requests)
        )
    return requests
