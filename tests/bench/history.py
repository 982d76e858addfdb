"""What a run, ``fds status`` and ``fds history`` cost when a stream has worked for years.

The ledger has a batch a minute. Staging, checkpoint and source are in memory, so CPU seconds are those of FDS.
"""

from __future__ import annotations

import bisect
import contextlib
import gc
import io
import json
import statistics
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.bench import driver_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.storage.storage import ObjectMeta
    from airflow_provider_fds.ledger.owner import Actor, Owner

#: Number of names in one page of a listing.
_PAGE = 1000
_TABLE_ID = "5d3c1f0e-0000-4000-8000-000000000000"
_NAME = "bench"
_TABLE, _STAGING, _SINK = "s3://bench/table", "s3://bench/staging", "s3://bench/sink"
#: The first version that the stream has read; older ones were removed by log cleanup.
_FIRST_VERSION = 1000
#: The source has a log checkpoint this many commits before its newest version.
_SINCE_CHECKPOINT = 99


class Memory:
    """A storage in memory that counts its requests by kind."""

    is_file_system = False

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.names: dict[str, list[str]] = {}
        self.requests: Counter[str] = Counter()
        self.now_ms = 0

    def _meta(self, key: str) -> ObjectMeta:
        from airflow_provider_fds.delta.storage.storage import ObjectMeta

        data, modified_ms = self.objects[key]
        return ObjectMeta(key, len(data), modified_ms, f"{modified_ms}-{len(data)}")

    def head(self, key: str) -> ObjectMeta | None:
        self.requests["HEAD"] += 1
        return self._meta(key) if key in self.objects else None

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        names = self.names.get(folder, [])
        names = names[0 if after is None else bisect.bisect_right(names, after) :]
        self.requests["LIST"] += 1
        for number, name in enumerate(names):
            if number and number % _PAGE == 0:
                self.requests["LIST"] += 1
            yield self._meta(f"{folder}/{name}" if folder else name)

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        self.requests["GET"] += 1
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key][0], self._meta(key)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        del chunk_bytes
        yield self.get(key)[0]

    def open(self, key: str) -> io.BytesIO:
        return io.BytesIO(self.get(key)[0])

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self.requests["PUT"] += 1
        if key in self.objects:
            return False
        self._write(key, data)
        return True

    def put(self, key: str, data: bytes) -> None:
        self.requests["PUT"] += 1
        self._write(key, data)

    def put_file(self, key: str, file: Any) -> None:
        self.put(key, file.read())

    def _write(self, key: str, data: bytes) -> None:
        folder, _, name = key.rpartition("/")
        if key not in self.objects:
            bisect.insort(self.names.setdefault(folder, []), name)
        self.objects[key] = (bytes(data), self.now_ms)

    def delete(self, key: str) -> None:
        self.requests["DELETE"] += 1
        if self.objects.pop(key, None) is not None:
            folder, _, name = key.rpartition("/")
            del self.names[folder][bisect.bisect_left(self.names[folder], name)]

    def list_folders(self, folder: str) -> list[str]:
        prefix = f"{folder}/"
        found = sorted({key.removeprefix(prefix).split("/", 1)[0] for key in self.names if key.startswith(prefix)})
        self.requests["LIST"] += 1 + len(found) // _PAGE
        return found

    def delete_folder(self, folder: str) -> None:
        self.requests["LIST"] += 1
        self.requests["DELETE"] += 1
        # nothing is deeper
        for below in (folder, f"{folder}/_delta_log"):
            for name in self.names.pop(below, ()):
                del self.objects[f"{below}/{name}"]

    def remove_unfinished(self, folder: str, before_ms: int) -> None:
        pass

    def beside(self, uri: str) -> None:
        del uri

    async def head_async(self, key: str) -> ObjectMeta | None:
        return self.head(key)


class Home:
    """Keeps the checkpoint in memory."""

    is_kept = True
    discard = "discard it"

    def __init__(self) -> None:
        self.found: Any = None

    def read(self) -> Any:
        return self.found

    def write(self, checkpoint: Any) -> None:
        self.found = checkpoint


class World:
    """A stream with a history of ``entries`` ledger entries, half of them plans, half commits of a batch each."""

    def __init__(self, entries: int) -> None:
        self.now = datetime.now(UTC)
        self.storages = {uri.rpartition("/")[2]: Memory(uri) for uri in (_TABLE, _STAGING, _SINK)}
        self.staging, self.source = self.storages["staging"], self.storages["table"]
        self.home = Home()
        self.runs = 0
        self.batches = (entries - 4) // 2
        self._write_source()
        with self.opened():
            self._write_ledger()

    def _write_source(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from tests.bench.generate_log import write_log

        with tempfile.TemporaryDirectory() as folder:
            write_log(Path(folder), 0, 0)
            first = (Path(folder) / "_delta_log" / f"{0:020d}.json").read_bytes()
        lines = [json.loads(line) for line in first.splitlines()]
        metadata = next(line["metaData"] for line in lines if "metaData" in line)
        del metadata["configuration"], metadata["format"]["options"]
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        rows = [{"protocol": protocol, "metaData": None}, {"protocol": None, "metaData": metadata}]
        self.newest = _FIRST_VERSION + self.batches - 1
        last = self.newest - _SINCE_CHECKPOINT
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), file)
        self.source.put(f"_delta_log/{last:020d}.checkpoint.parquet", file.getvalue())
        self.source.put("_delta_log/_last_checkpoint", b'{"version":%d,"size":2}' % last)
        for version in range(last, self.newest + 1):
            self._append(version)

    def _append(self, version: int) -> None:
        add = {
            "add": {
                "path": f"part-{version:08d}.parquet",
                "partitionValues": {"d": "2026-01-01"},
                "size": 1000,
                "modificationTime": 1,
                "dataChange": True,
                "stats": '{"numRecords":10}',
            }
        }
        info = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}
        self.source.now_ms = int(self.now.timestamp() * 1000)
        data = "".join(json.dumps(line) + "\n" for line in (info, add))
        self.source.put(f"_delta_log/{version:020d}.json", data.encode())

    def append(self) -> None:
        """Commit one more file to the source."""
        self.newest += 1
        self._append(self.newest)

    def _write_ledger(self) -> None:
        from airflow_provider_fds.ledger.entries.commit_entries import Committed
        from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created, Opened
        from airflow_provider_fds.ledger.entries.plan_entries import Planned
        from airflow_provider_fds.ledger.staging.log import Ledger
        from airflow_provider_fds.ledger.values import PlannedBatch
        from airflow_provider_fds.sinks import DeltaAppendSink
        from airflow_provider_fds.stream.epochs.opening import _binding

        # a plan and a commit in each minute up to now
        left = 2 * self.batches + 3
        connected = self.session("first").connected
        ledger = Ledger(self.staging, _NAME, clock=lambda: self.now - timedelta(seconds=30 * left))
        actor = self.actor("first")
        ledger.execute(Created(uuid="u1", name=_NAME, table=self.source.uri, deployment="bench"), actor)
        ledger.execute(Opened(epoch=1, start=_offset(_FIRST_VERSION), table_id=_TABLE_ID), actor)
        ledger.execute(Bound(epoch=1, sink=_binding(connected, DeltaAppendSink(_SINK), "u1")), actor)
        sha = self._sha(self.newest)
        for number in range(self.batches):
            owner, actor = self.owner(f"h{number}"), self.actor(f"h{number}")
            version = _FIRST_VERSION + number
            batch = PlannedBatch(
                batch_id=number,
                start=_offset(version),
                end=_offset(version + 1),
                first_version=version,
                last_version=version,
                manifest=f"manifests/1/{number}-d{number}",
                digest=f"d{number}",
                num_files=1,
                num_bytes=1000,
                num_rows=10,
                prev_txn_version=ledger.state.next_prev_txn_version,
                skipped=(),
                log_digest="x",
                last_commit_sha256=sha,
            )
            planned = Planned(
                epoch=1,
                owner=owner,
                target=version,
                batches=(batch,),
                options_digest="o",
                meaning_digest="m",
            )
            committed = Committed(
                epoch=1,
                batch_id=number,
                owner=owner,
                attempt_id="t",
                outcome="written",
                digest=f"d{number}",
                sink_version=version,
                sink_table_id="sink",
                rows=10,
            )
            for action in (planned, committed):
                left -= 1
                ledger.execute(action, actor)
            # as retention leaves it: the folders of fourteen days
            if left < 2 * 14 * 24 * 60:
                self.staging.put(f"{_NAME}/manifests/1/{number}-d{number}/_delta_log/{0:020d}.json", b"{}")
        ledger.save_fold()
        self.home.write(ledger.checkpoint())
        self._write_sink(self.newest)
        folds = sorted(self.staging.names[f"{_NAME}/ledger/_checkpoint"])
        for name in folds[:-5]:
            if (int(name.split(".")[0]) + 1) % 1000:
                self.staging.delete(f"{_NAME}/ledger/_checkpoint/{name}")

    def _write_sink(self, version: int, batch: Any = None, attempt_id: str = "") -> None:
        from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata

        info: dict[str, Any] = {"operation": "WRITE"}
        if batch is not None:
            info["userMetadata"] = commit_metadata(batch, attempt_id, {})
        line = json.dumps({"commitInfo": info}, separators=(",", ":"))
        self.storages["sink"].put(f"_delta_log/{version:020d}.json", line.encode())

    def _sha(self, version: int) -> str:
        import hashlib

        return hashlib.sha256(self.source.objects[f"_delta_log/{version:020d}.json"][0]).hexdigest()

    def actor(self, run: str) -> Actor:
        from airflow_provider_fds.ledger.owner import Actor

        return Actor(deployment="bench", dag_id="d", run_id=run, task_id="t", try_number=1)

    def owner(self, run: str) -> Owner:
        from airflow_provider_fds.ledger.owner import Owner

        return Owner(kind="airflow", deployment="bench", dag_id="d", run_id=run, task_id="t")

    def session(self, run: str) -> Any:
        from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

        stream = DeltaStream(_NAME, table=_TABLE, starting_version=0)
        context = StreamContext(
            staging_uri=_STAGING,
            deployment="bench",
            actor=self.actor(run),
            owner=self.owner(run),
            owner_is_running=lambda _owner: False,
            checkpoints=self.home,
        )
        return StreamSession(stream, context)

    def opened(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the storages of this world are opened."""
        by_uri = {storage.uri: storage for storage in self.storages.values()}
        stack = contextlib.ExitStack()
        for place in (
            "airflow_provider_fds.stream.connected_stream.open_storage",
            "airflow_provider_fds.delta.storage.open.open_storage",
        ):
            stack.enter_context(mock.patch(place, lambda uri, *_: by_uri[uri]))
        return stack

    def run(self) -> None:
        """Do everything that a run with one new batch does, except Spark: plan, verify, commit, retention."""
        from airflow_provider_fds.batch.report import report_name
        from airflow_provider_fds.batch.spec import JobSpec
        from airflow_provider_fds.ledger.staging.housekeeping import Retention
        from airflow_provider_fds.sinks import DeltaAppendSink
        from airflow_provider_fds.stream.run.purge import purge_stream

        self.runs += 1
        sink = DeltaAppendSink(_SINK)
        session = self.session(f"run{self.runs}")
        work = session.begin(sink)
        job = JobSpec.from_json(self.staging.objects[session.job(work, sink).partition("/staging/")[2]][0])
        (batch,) = job.batches
        report = driver_report.written(job, batch, self.newest)
        self._write_sink(self.newest, batch, job.attempt_id)
        name = report_name(batch.epoch, batch.batch_id, job.attempt_id)
        self.staging.put(f"{_NAME}/attempts/{name}", report.to_json())
        assert len(session.collect(work).committed) == 1
        assert session.begin(sink).status in ("done", "up_to_date")
        purge_stream(session.connected, Retention())

    def status(self) -> None:
        """Read the status of the stream."""
        assert self.session("status").status().problem is None

    def history(self) -> None:
        """Print the newest page of the history."""
        from airflow_provider_fds.cli.main import main

        with contextlib.redirect_stdout(io.StringIO()):
            main(["history", _NAME, "--staging", _STAGING])


def cost(entries: int, repeats: int = 50) -> dict[str, Any]:
    """Return requests by kind and CPU seconds of a run, a status and a history after so many entries."""
    world = World(entries)
    found: dict[str, Any] = {}
    with world.opened():
        # the first runs fill caches, and move retention to where earlier runs would have left it
        for _ in range(3):
            world.append()
            world.run()
            world.status()
            world.history()
        # an object store would not be in this process, and cost its garbage collector nothing
        gc.collect()
        gc.freeze()
        for name in ("run", "status", "history"):
            for storage in world.storages.values():
                storage.requests.clear()
            cpu = []
            for _ in range(repeats):
                if name == "run":
                    world.append()
                start = time.process_time()
                getattr(world, name)()
                cpu.append(time.process_time() - start)
            made = {
                f"{place} {kind}": round(count / repeats, 2)
                for place, storage in world.storages.items()
                for kind, count in sorted(storage.requests.items())
            }
            # the bench itself writes the source's commit, the sink's commit and the report
            total = sum(made.values()) - (3 if name == "run" else 0)
            found[name] = {"cpu": statistics.median(cpu), "requests": made, "total": round(total, 2)}
    return found


def _offset(version: int) -> str:
    from airflow_provider_fds.source.offset import Offset

    return Offset(_TABLE_ID, version).to_json()


if __name__ == "__main__":
    import sys

    for number in map(int, sys.argv[1:] or ["10", "1000", "10000"]):
        print(number, json.dumps(cost(number, repeats=5), indent=1))
