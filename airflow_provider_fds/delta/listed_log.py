"""A table in an object store whose log is listed once in a plan or a status, where each request takes long."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

from airflow_provider_fds.delta.names import LAST_CHECKPOINT, LOG_FOLDER, parse_commit_name
from airflow_provider_fds.delta.storage.folder_view import FolderView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage

#: A longer listing takes more than one request, and is not kept.
_PAGE: Final = 1000
_NAME_AT: Final = len(LOG_FOLDER) + 1


class ListedLog(FolderView):
    """A folder whose log, in the body of :meth:`one_answer`, need not be listed again from where it was listed.

    A listing is kept if it ends with the log, has no hole and no empty commit, and took one request. It answers later
    listings of a part of it, and looks at commits that it has. It never answers that something is missing: storage is
    asked about whatever it does not have. If storage contradicts it (a newer commit, a file that is gone), it is no
    longer used.

    What is listed, or read, in other threads than that of the body is always a request.
    """

    def __init__(self, folder: Storage) -> None:
        super().__init__(folder)
        #: By thread, whether :meth:`one_answer` is in force (``is_on``), what was ``listed``, and the ``hint``.
        self._scope = threading.local()
        self._contradictions = 0

    def __repr__(self) -> str:
        return f"ListedLog({self._folder!r})"

    @contextmanager
    def one_answer(self) -> Iterator[None]:
        """In the body, keep what was listed, in this thread; it ends with the body."""
        if self._is_on:
            yield
            return
        self.renew()
        self._scope.is_on = True
        try:
            yield
        finally:
            self._scope.is_on = False
            self.renew()

    def renew(self) -> None:
        """Let the next question be a request, whatever was listed."""
        self._scope.listed = self._scope.hint = None

    @property
    def _is_on(self) -> bool:
        return getattr(self._scope, "is_on", False)

    @property
    def _listed(self) -> _Listing | None:
        found: _Listing | None = self._scope.listed if self._is_on else None
        return found if found is not None and found.contradictions == self._contradictions else None

    def head(self, key: str) -> ObjectMeta | None:
        """Return the metadata of an object; without a request if it is a commit that was listed."""
        listed = self._listed
        if listed is not None and (known := listed.commits.get(key)) is not None:
            return known
        found = self._folder.head(key)
        if found is not None and listed is not None and listed.should_have(key):
            self.renew()
        return found

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield the children of ``folder``; of the log, without a request if they were listed."""
        if folder != LOG_FOLDER or not self._is_on:
            return self._folder.list_after(folder, after)
        listed = self._listed
        return self._noted(after) if listed is None or not listed.has_all_after(after) else listed.items_after(after)

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """Return the whole object. Raises ``FileNotFoundError``."""
        if key == LAST_CHECKPOINT and self._is_on:
            return self._hint()
        try:
            return self._folder.get(key)
        except FileNotFoundError:
            self._contradictions += 1
            raise

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """Yield the object in chunks. Raises ``FileNotFoundError`` at the first one."""
        try:
            yield from self._folder.stream(key, chunk_bytes)
        except FileNotFoundError:
            self._contradictions += 1
            raise

    def open(self, key: str) -> BinaryIO:
        """Open the object for reading with seek. Raises ``FileNotFoundError``."""
        try:
            return self._folder.open(key)
        except FileNotFoundError:
            self._contradictions += 1
            raise

    def _hint(self) -> tuple[bytes, ObjectMeta]:
        """Read ``_last_checkpoint`` once: it only decides where a listing starts."""
        if self._scope.hint is None:
            try:
                self._scope.hint = self._folder.get(LAST_CHECKPOINT)
            except FileNotFoundError as error:
                self._scope.hint = error
        found: tuple[bytes, ObjectMeta] | FileNotFoundError = self._scope.hint
        if isinstance(found, FileNotFoundError):
            raise FileNotFoundError(*found.args)
        return found

    def _noted(self, after: str | None) -> Iterator[ObjectMeta]:
        """Yield the files of the log, and keep them once no version can follow."""
        contradictions = self._contradictions
        noted: list[ObjectMeta] = []
        has_ended = False
        for item in self._folder.list_after(LOG_FOLDER, after):
            if not has_ended and item.key[_NAME_AT:] > ":":
                has_ended = True
                self._keep(after, noted, contradictions)
            if not has_ended and len(noted) <= _PAGE:
                noted.append(item)
            yield item
        if not has_ended:
            self._keep(after, noted, contradictions)

    def _keep(self, after: str | None, items: Sequence[ObjectMeta], contradictions: int) -> None:
        if self._is_on and len(items) <= _PAGE and (found := _Listing.of(after, items, contradictions)) is not None:
            self._scope.listed = found


def listed_once(folder: Storage) -> Storage:
    """Return a table whose log is listed once in a plan: a file system answers at once, and a catalog's view itself."""
    return folder if folder.is_file_system or hasattr(folder, "one_answer") else ListedLog(folder)


class _Listing:
    """Files of the log that were listed: all after a name that have a version.

    Attributes:
        after: The name; ``None``: the listing began with the log.
        items: The files, ascending.
        commits: Those that are commits, by their keys.
        contradictions: How many of its answers storage had contradicted before.
    """

    def __init__(self, after: str | None, items: Sequence[ObjectMeta], contradictions: int) -> None:
        self.after = after
        self.items = items
        self.commits = {item.key: item for item in items if parse_commit_name(item.key[_NAME_AT:]) is not None}
        self.contradictions = contradictions
        self._newest = next(reversed(self.commits), "")[_NAME_AT:]

    @classmethod
    def of(cls, after: str | None, items: Sequence[ObjectMeta], contradictions: int) -> _Listing | None:
        """Return the listing, or ``None`` if it needs a second look: it has no commits, a hole, or an empty commit."""
        found = cls(after, items, contradictions)
        versions = [parse_commit_name(key[_NAME_AT:]) or 0 for key in found.commits]
        is_whole = versions and versions[-1] - versions[0] + 1 == len(versions)
        return found if is_whole and all(meta.size_bytes > 0 for meta in found.commits.values()) else None

    def has_all_after(self, after: str | None) -> bool:
        """Whether it answers a listing after ``after``: not one of what may have come after its newest commit."""
        begins_earlier = self.after is None or (after is not None and after >= self.after)
        return begins_earlier and (after is None or after < self._newest)

    def should_have(self, key: str) -> bool:
        """Whether an object that it lacks was not there when it was made."""
        return key.startswith(f"{LOG_FOLDER}/") and (self.after is None or key[_NAME_AT:] > self.after)

    def items_after(self, after: str | None) -> Iterator[ObjectMeta]:
        """Yield the files after ``after``."""
        return (item for item in self.items if after is None or item.key[_NAME_AT:] > after)
