"""All streams that the page can show: those with a status file in one of the configured staging folders."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.hooks.settings import deployment, staging_conn_id, ui_staging_uris
from airflow_provider_fds.hooks.storage import storage_options
from airflow_provider_fds.stream.monitoring.driver_progress import read_driver
from airflow_provider_fds.stream.monitoring.status_file import with_state
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from airflow_provider_fds.stream.monitoring.stream_id import StreamId, staging_digest
from airflow_provider_fds.ui.actions import StreamActions, describe_actions
from airflow_provider_fds.ui.folders import StatusFolder
from airflow_provider_fds.ui.history import StreamHistory, describe_history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.monitoring.status_row import StatusRow

#: Ledgers that are kept in memory.
_KEPT_HISTORIES: Final = 64


@dataclass(frozen=True, slots=True)
class ListedStreams:
    """The streams of all folders.

    Attributes:
        staging: URIs of the folders.
        rows: By folder, and by name of the stream.
        problems: What is wrong with a folder: ``staging`` and ``message``.
    """

    staging: list[str]
    rows: Mapping[str, Mapping[str, StatusRow]]
    problems: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class FoundStream:
    """One stream.

    Attributes:
        row: Its status file.
        staging: Its staging folder.
        history: Its ledger.
    """

    row: StatusRow
    staging: Storage
    history: StreamHistory

    def details(self) -> tuple[StatusRow, dict[str, Any]]:
        """Return the row with the current state of the ledger, and the details that the stream's page shows.

        Raises:
            FdsError: The ledger cannot be read.
        """
        file = read_status_file(self.staging, self.row.name)
        state, entries = self.history.read()
        samples = () if file is None else file.samples
        row = with_state(self.row, state, self.history.newest)
        return replace(row, driver=read_driver(self.staging, state)), {
            **describe_history(state, entries),
            "actions": describe_actions(state, deployment()),
            "samples": [
                {"at": one.at, "lag_versions": one.lag_versions, "lag_seconds": one.lag_seconds} for one in samples
            ],
        }

    def actions(self, owner_runs: Callable[[str], Callable[[Owner], bool | None]]) -> StreamActions:
        """Return the actions on the stream.

        Args:
            owner_runs: Returns, for the name of this installation, a function that looks up whether an owner
                is running.

        Raises:
            FdsError: The ledger cannot be read, or the stream belongs to another installation.
        """
        here = deployment()
        return StreamActions(self.staging, self.row.name, deployment=here, owner_runs=owner_runs(here))


class Streams:
    """The streams of the configured folders. Safe for use by several threads."""

    def __init__(self) -> None:
        self._folders: dict[tuple[str, str | None], StatusFolder] = {}
        self._histories: OrderedDict[tuple[str, str, str | None], StreamHistory] = OrderedDict()
        self._lock = Lock()

    def all(self, may_see: Callable[[str], bool]) -> ListedStreams:
        """Return all streams. A folder that cannot be read, or that is not configured, is a problem.

        Args:
            may_see: Whether the person may see a stream without a row, by its name.
        """
        rows: dict[str, Mapping[str, StatusRow]] = {}
        problems: list[dict[str, str]] = []
        try:
            folders = self._configured()
        except FdsError as error:
            return ListedStreams([], {}, [{"staging": "", "message": redacted(f"[{error.reason_code}] {error}")}])
        for folder in folders:
            try:
                found = folder.read()
            except FdsError as error:
                problems.append({"staging": folder.uri, "message": redacted(f"[{error.reason_code}] {error}")})
                continue
            rows[folder.uri] = found.rows
            messages = (problem.describe(may_see) for problem in found.problems)
            problems += [{"staging": folder.uri, "message": message} for message in messages if message is not None]
        return ListedStreams([folder.uri for folder in folders], rows, problems)

    def find(self, stream_id: str) -> FoundStream | None:
        """Return the stream with an id, or ``None``.

        Raises:
            FdsError: Its staging folder cannot be read.
        """
        wanted = StreamId.parse(stream_id)
        if wanted is None:
            return None
        for folder in self._configured():
            if staging_digest(folder.uri) != wanted.staging:
                continue
            row = folder.read().rows.get(wanted.name)
            if row is None:
                return None
            staging = folder.open()
            return FoundStream(row, staging, self._history(staging, row))
        return None

    def forget(self, stream_id: str) -> None:
        """Read the status file of a stream again at the next request."""
        for folder in self._configured():
            if stream_id.startswith(staging_digest(folder.uri)):
                folder.forget()

    def _configured(self) -> list[StatusFolder]:
        conn_id = staging_conn_id()

        def folder_of(uri: str) -> StatusFolder:
            return StatusFolder(uri, lambda: storage_options(conn_id, uri))

        with self._lock:
            wanted = [(uri, conn_id) for uri in ui_staging_uris()]
            self._folders = {key: self._folders.get(key) or folder_of(key[0]) for key in wanted}
            return list(self._folders.values())

    def _history(self, staging: Storage, row: StatusRow) -> StreamHistory:
        # a ledger that was lost and begun again has another uuid
        key = (staging.uri, row.name, row.uuid)
        with self._lock:
            history = self._histories.pop(key, None) or StreamHistory(staging, row.name)
            self._histories[key] = history
            while len(self._histories) > _KEPT_HISTORIES:
                self._histories.popitem(last=False)
            return history
