"""A random table by its name in a catalog, which points to its folder, or which alone knows its newest commits."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.catalog.unity import UnityCatalog
from airflow_provider_fds.delta.names import commit_name
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place
from tests.unit.catalog.unity_server import Reply, UnityServer, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.differential.reading import Reading, TwoReaders
    from tests.interop.differential.tables import RandomTable

#: How a table is found.
KINDS: Final = ("by path", "by name", "by name, managed")

_TABLES: Final = "GET /delta/v1/catalogs/main/schemas/sales/tables/"
#: The most commits that only the catalog knows.
_MOST_STAGED: Final = 4
#: A commit that must not be read.
_WRONG: Final = (
    '{"commitInfo":{"inCommitTimestamp":1,"timestamp":1,"operation":"WRITE","operationParameters":{}}}\n'
    '{"add":{"path":"wrong.parquet","partitionValues":{"pt":"wrong"},"size":9,"modificationTime":1,"dataChange":true}}\n'
)


class NamedTables:
    """A catalog that knows one table at a time."""

    def __init__(self) -> None:
        self._server = UnityServer()
        self._places = CatalogPlaces(UnityCatalog(self._server.url), lambda _: {})

    def close(self) -> None:
        self._server.close()

    @contextmanager
    def log_of(self, table: RandomTable, kind: str) -> Iterator[DeltaLog]:
        """Give the log of a table as it is found in one of the :data:`KINDS`, all from the same folder."""
        if kind == "by path":
            yield table.log
        elif kind == "by name":
            yield self._log(table, "orders", recorded("15_external_load"))
        else:
            with _staged(table) as answer:
                yield self._log(table, "events", recorded("39_managed_load_v3") | answer)

    def _log(self, table: RandomTable, name: str, body: dict[str, Any]) -> DeltaLog:
        body["metadata"] |= {"location": table.log.table_uri}
        self._server.replies[f"{_TABLES}{name}"] = Reply(200, body)
        return DeltaLog(open_place(self._places.resolve(f"main.sales.{name}")))


def readings(
    readers: TwoReaders,
    catalog: NamedTables,
    table: RandomTable,
    options: dict[str, Any],
    limits: list[dict[str, int]],
    *,
    read: str,
) -> dict[str, Reading]:
    """Plan a table as it is found in each of the :data:`KINDS`; let Spark read the batches of one, ``read``."""
    found = {}
    for kind in KINDS:
        with catalog.log_of(table, kind) as log:
            found[kind] = readers.by_fds(log, options, limits, reads=kind == read)
    return found


def plans_differ(found: dict[str, Reading]) -> str | None:
    """Return how a plan by name differs from the one by path."""
    plans = {kind: replace(reading, rows=Counter()) for kind, reading in found.items()}
    by_path = plans[KINDS[0]]
    return next((f"{kind}: {plan}, not {by_path}" for kind, plan in plans.items() if plan != by_path), None)


@contextmanager
def _staged(table: RandomTable) -> Iterator[dict[str, Any]]:
    """Let the newest commits be known to the catalog only, which says in the body what it answers of them.

    Beside them are commits that lost, half-written ones, false published files of staged commits, and files of a
    version that the catalog has never accepted. At the end the folder is as it was.
    """
    log = Path(table.path) / "_delta_log"
    newest, oldest = table.log.latest(), table.log.earliest()
    random_ = Random(f"staged {table.seed} {newest}")
    first = newest - min(random_.randint(0, _MOST_STAGED), newest - oldest) + 1
    folder = log / "_staged_commits"
    # Delta itself makes it for some tables
    folder.mkdir(exist_ok=True)
    moved: list[tuple[Path, Path]] = []
    wrong: list[Path] = []

    def leave(path: Path, text: str = _WRONG) -> None:
        path.write_text(text)
        wrong.append(path)

    try:
        for version in range(first, newest + 1):
            published, staged = log / commit_name(version), folder / _staged_name(version)
            published.rename(staged)
            moved.append((published, staged))
            leave(folder / _staged_name(version))
            leave(folder / _staged_name(version), _WRONG[:40])
            if random_.random() < 0.5:
                leave(published)
        leave(folder / _staged_name(newest + 1))
        leave(log / commit_name(newest + 1))
        leave(log / f"{newest + 1:020d}.checkpoint.parquet")
        yield {"commits": [_commit(staged) for _, staged in moved], "latest-table-version": newest}
    finally:
        for path in wrong:
            path.unlink()
        for published, staged in moved:
            staged.rename(published)


def _staged_name(version: int) -> str:
    return f"{version:020d}.{uuid.uuid4()}.json"


def _commit(path: Path) -> dict[str, Any]:
    found = path.stat()
    modified_ms = found.st_mtime_ns // 1_000_000
    return {
        "version": int(path.name.partition(".")[0]),
        "file-name": path.name,
        "file-size": found.st_size,
        "file-modification-timestamp": modified_ms,
        "timestamp": modified_ms,
    }
