"""Values of the ledger, and a storage in memory whose accesses can fail at named points."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import pytest
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.delta.storage.storage import ObjectMeta
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created, Opened
from airflow_provider_fds.ledger.entries.plan_entries import Advanced, Claimed, Planned, Submitted
from airflow_provider_fds.ledger.entries.protocol import decide, evolve
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.ledger.entries.action import BaseAction


class MemoryStorage:
    """A storage in memory whose accesses are all atomic.

    Attributes:
        fail: How many of the next accesses fail, by kind (``get``, ``list``, ``put_if_absent``, ``put``).
        lose_response: How many of the next accesses are performed but their response is lost, by kind.
        honours_condition: Whether ``put_if_absent`` looks before it writes.
    """

    uri = "memory://staging"
    is_file_system = False

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self.fail: Counter[str] = Counter()
        self.lose_response: Counter[str] = Counter()
        self.honours_condition = True

    def _request(self, kind: str) -> None:
        self.requests[kind] += 1
        if self.fail[kind] > 0:
            self.fail[kind] -= 1
            raise StorageError(f"{kind}: no answer")

    def _response(self, kind: str) -> None:
        if self.lose_response[kind] > 0:
            self.lose_response[kind] -= 1
            raise StorageError(f"{kind}: connection reset")

    def head(self, key: str) -> ObjectMeta | None:
        self._request("head")
        return ObjectMeta(key, len(self.objects[key]), 0) if key in self.objects else None

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        self._request("list")
        prefix = f"{folder}/"
        for key in sorted(self.objects):
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and "/" not in name and (after is None or name > after):
                yield ObjectMeta(key, len(self.objects[key]), 0)

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        self._request("get")
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key], ObjectMeta(key, len(self.objects[key]), 0)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        yield self.get(key)[0]

    def open(self, key: str) -> BinaryIO:
        raise NotImplementedError

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._request("put_if_absent")
        is_new = key not in self.objects or not self.honours_condition
        if is_new:
            self.objects[key] = data
        self._response("put_if_absent")
        return is_new

    def put(self, key: str, data: bytes) -> None:
        self._request("put")
        self.objects[key] = data

    def put_file(self, key: str, file: IO[bytes]) -> None:
        raise NotImplementedError

    def delete(self, key: str) -> None:
        self._request("delete")
        self.objects.pop(key, None)

    def list_folders(self, folder: str) -> list[str]:
        self._request("list")
        prefix = f"{folder}/"
        below = (key.removeprefix(prefix) for key in self.objects if key.startswith(prefix))
        return sorted({name.split("/", 1)[0] for name in below if "/" in name})

    def delete_folder(self, folder: str) -> None:
        self._request("delete")
        for key in [key for key in self.objects if key.startswith(f"{folder}/")]:
            del self.objects[key]

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        pass

    async def head_async(self, key: str) -> ObjectMeta | None:
        return self.head(key)


class Make:
    """Creates the values that tests of the ledger use. Batches of one version each, from version 0."""

    Storage = MemoryStorage
    table = "s3://lake/orders"
    table_id = "11111111-2222-3333-4444-555555555555"
    sink_id = "99999999-8888-7777-6666-555555555555"
    actor = Actor(deployment="prod", dag_id="orders", run_id="r1", task_id="ingest", try_number=1)
    person = Actor(deployment="prod", user="ann", host="desk")
    sink = SinkBinding(kind="delta_append", target="s3://lake/bronze", app_ids=("fds:u1",))
    user_job = SinkBinding(kind="user_job")
    #: An operator's clock, which does not advance.
    now = datetime(2026, 11, 20, 12, 30, 15, 250_000, UTC)

    def owner(self, run: str = "r1", **changes: Any) -> Owner:
        return Owner(
            **{
                "kind": "airflow",
                "deployment": "prod",
                "dag_id": "orders",
                "run_id": run,
                "task_id": "ingest",
                **changes,
            }
        )

    def offset(self, version: int, index: int = -100, *, snapshot: bool = False) -> str:
        return Offset(self.table_id, version, index, snapshot).to_json()

    def batch(self, batch_id: int, epoch: int = 1, *, prev: int | None = None, **changes: Any) -> PlannedBatch:
        if prev is None and batch_id:
            prev = txn_version(epoch, batch_id - 1)
        return PlannedBatch(
            **{
                "batch_id": batch_id,
                "start": self.offset(batch_id),
                "end": self.offset(batch_id + 1),
                "first_version": batch_id,
                "last_version": batch_id,
                "manifest": f"manifests/{epoch}/{batch_id}-d{batch_id}",
                "digest": f"d{batch_id}",
                "num_files": 2,
                "num_bytes": 2000,
                "num_rows": 20,
                "prev_txn_version": prev,
                "skipped": (),
                "log_digest": f"log{batch_id}",
                "last_commit_sha256": f"sha{batch_id}",
                **changes,
            }
        )

    def create(self, **changes: Any) -> Created:
        return Created(**{"uuid": "u1", "name": "orders", "table": self.table, "deployment": "prod", **changes})

    def open(self, epoch: int = 1, version: int = 0, **changes: Any) -> Opened:
        return Opened(**{"epoch": epoch, "start": self.offset(version), "table_id": self.table_id, **changes})

    def bind(self, epoch: int = 1, **changes: Any) -> Bound:
        return Bound(**{"epoch": epoch, "sink": self.sink, "table_id": None, **changes})

    def plan(self, *batches: PlannedBatch, run: str = "r1", epoch: int = 1, **changes: Any) -> Planned:
        return Planned(
            **{
                "epoch": epoch,
                "owner": self.owner(run),
                "target": 100,
                "batches": batches,
                "options_digest": "o1",
                "meaning_digest": "m1",
                **changes,
            }
        )

    def claim(self, run: str, previous: str, epoch: int = 1) -> Claimed:
        return Claimed(epoch=epoch, owner=self.owner(run), previous=self.owner(previous), why="state is failed")

    def submit(self, run: str = "r1", epoch: int = 1, **changes: Any) -> Submitted:
        return Submitted(
            **{
                "epoch": epoch,
                "owner": self.owner(run),
                "attempt_id": "t1",
                "batch_id": 1,
                "cluster": "standalone",
                "address": "http://master:6066",
                "driver": "driver-20261120123015-0000",
                **changes,
            }
        )

    def commit(self, batch_id: int, epoch: int = 1, run: str = "r1", **changes: Any) -> Committed:
        return Committed(
            **{
                "epoch": epoch,
                "batch_id": batch_id,
                "owner": self.owner(run),
                "attempt_id": "t1",
                "outcome": "written",
                "digest": f"d{batch_id}",
                "sink_version": batch_id + 1,
                "sink_table_id": self.sink_id,
                "rows": 20,
                **changes,
            }
        )

    def advance(self, first: int, last: int, epoch: int = 1, run: str = "r1", **changes: Any) -> Advanced:
        return Advanced(
            **{
                "epoch": epoch,
                "owner": self.owner(run),
                "start": self.offset(first),
                "end": self.offset(last + 1),
                "first_version": first,
                "last_version": last,
                "skipped": (),
                "log_digest": f"log{last}",
                "last_commit_sha256": f"sha{last}",
                **changes,
            }
        )

    def entry(self, n: int, action: Any, **changes: Any) -> Entry:
        return replace(
            Entry(n=n, id=f"id{n}", time="2026-11-20T12:30:15.250Z", writer="0.1.0", actor=self.actor, action=action),
            **changes,
        )

    def state(self, *commands: BaseAction, request_ids: bool = False) -> StreamState:
        """Return the state after the commands, each of which must produce an entry."""
        state = StreamState(name="orders")
        for n, command in enumerate(commands):
            action = decide(state, command)
            assert action is not None, command
            state = evolve(state, self.entry(n, action, request_id=f"q{n}" if request_ids else None))
        return state

    def opened(self, *commands: BaseAction) -> StreamState:
        """Return the state of an open, bound stream after the commands."""
        return self.state(self.create(), self.open(), self.bind(), *commands)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow immediately."""
    monkeypatch.setattr("airflow_provider_fds.delta.storage.client_limits.PAUSE_SECONDS", 0.0)
