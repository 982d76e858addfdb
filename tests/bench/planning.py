"""Planning: many commits, one huge commit, and what FDS adds around the Spark job."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import driver_report

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot
    from airflow_provider_fds.delta.storage.storage import Storage


def plan(root: str, target: int) -> dict[str, Any]:
    """Plan everything from version 0 to ``target`` and discard the batches."""
    from airflow_provider_fds.delta.storage.open import open_storage

    return _plan(open_storage(root), target)


def plan_by_name(root: str, target: int) -> dict[str, Any]:
    """The same of a table whose commits a Unity Catalog manages, without the start of the catalog and of its client."""
    from airflow_provider_fds.catalog.table import CatalogPlaces
    from airflow_provider_fds.catalog.unity import UnityCatalog
    from airflow_provider_fds.delta.storage.open import open_place
    from tests.unit.catalog.unity_server import Reply, UnityServer, recorded

    server = UnityServer()
    try:
        body = recorded("39_managed_load_v3")
        body["metadata"]["location"] = Path(root).as_uri()
        body |= {"commits": [], "latest-table-version": target}
        server.replies["GET /delta/v1/config"] = Reply(200, recorded("07_config"))
        server.replies["GET /delta/v1/catalogs/main/schemas/sales/tables/many"] = Reply(200, body)
        places = CatalogPlaces(UnityCatalog(server.url), lambda _: {})
        start = time.perf_counter()
        found = _plan(open_place(places.resolve("main.sales.many")), target)
        return {**found, "requests": len(server.requests), "seconds": time.perf_counter() - start}
    finally:
        server.close()


def _plan(storage: Storage, target: int) -> dict[str, Any]:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planning.plan import BatchPlanner

    log = DeltaLog(storage)
    planner = BatchPlanner(log, Offset("5d3c1f0e-0000-4000-8000-000000000000", 0), None, SourceOptions(), target)
    batches = files = size = 0
    for batch in planner:
        batches += 1
        files += batch.num_files
        size += batch.num_bytes
    assert planner.outcome is not None
    assert planner.outcome.error is None
    return {"batches": batches, "files": files, "bytes": size}


def around_the_job(root: str, target: int, files: int = 1000, *, as_task: bool = False) -> dict[str, Any]:
    """Do everything that a run does for one batch except Spark: plan, manifest, ledger, checkpoint, verify, commit.

    ``as_task`` first imports what an Airflow task has: Airflow, the operator, its hooks; and builds the arguments of
    spark-submit.
    """
    if as_task:
        import_module("airflow_provider_fds.operators.delta_ingest")
    from airflow_provider_fds.batch.report import report_name
    from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.delta.names import commit_key
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder) / "staging"
        stream = DeltaStream("bench", table=root, starting_version=target - 99, max_files_per_batch=files)
        import_module("airflow_provider_fds.stream.run.session")
        sink = DeltaAppendSink(f"{folder}/sink")
        start = time.perf_counter()
        session = StreamSession(
            stream,
            StreamContext(
                staging_uri=str(staging),
                deployment="bench",
                actor=Actor(deployment="bench", user="bench", host="bench"),
                owner=Owner(kind="cli", deployment="bench", run_id="bench"),
                owner_is_running=lambda _owner: False,
                checkpoints=FileCheckpointStore(Path(folder) / "checkpoint.json"),
            ),
        )
        work = session.begin(sink)
        spec_uri = session.job(work, sink)
        if as_task:
            import_module("airflow_provider_fds.spark.submission.submit").submit_arguments(spec_uri, master="local[2]")
        seconds = time.perf_counter() - start
        storage = session.connected.staging
        job = JobSpec.from_json(storage.get(spec_uri.removeprefix(storage.uri + "/"))[0])
        (batch,) = job.batches
        assert batch.num_files == files
        report = driver_report.written(job, batch, 1)
        told = {"operation": "WRITE", "userMetadata": commit_metadata(batch, job.attempt_id, {})}
        line = json.dumps({"commitInfo": told}, separators=(",", ":"))
        session.connected.open_sink(sink.uri).put(commit_key(1), line.encode())
        storage.put(f"bench/attempts/{report_name(batch.epoch, batch.batch_id, job.attempt_id)}", report.to_json())
        start = time.perf_counter()
        collected = session.collect(work)
        seconds += time.perf_counter() - start
        assert len(collected.committed) == 1
    return {"seconds": seconds, "files": batch.num_files}


def order_snapshot(root: str, version: int) -> dict[str, Any]:
    """List the files of a snapshot in order: path, size, vector."""
    from airflow_provider_fds.delta.log_checkpoint.add_rows import FILE_COLUMNS
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.reader.replay import files_in_order
    from airflow_provider_fds.delta.storage.open import open_storage

    digest = hashlib.sha256()
    files = 0
    for batch in files_in_order(DeltaLog(open_storage(root)), version, FILE_COLUMNS):
        files += batch.num_rows
        _digest(digest, batch.column("path"), batch.column("size"))
    return {"files": files, "digest": digest.hexdigest()}


def order_with_deltalake(root: str, version: int) -> dict[str, Any]:
    """The same list from deltalake's ``get_add_actions`` and a sort."""
    import pyarrow as pa
    from deltalake import DeltaTable

    table = pa.table(DeltaTable(root, version=version).get_add_actions(flatten=True))
    # deltalake's times are timestamps, which sort like the milliseconds
    table = table.select(["path", "size_bytes", "modification_time"])
    table = table.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    digest = hashlib.sha256()
    for batch in table.to_batches():
        _digest(digest, batch.column("path"), batch.column("size_bytes"))
    return {"files": table.num_rows, "digest": digest.hexdigest()}


def freeze(root: str, version: int) -> dict[str, Any]:
    """Write the complete add actions of a snapshot, in order, as Parquet; then plan its first and its last batches."""
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
    from airflow_provider_fds.delta.storage.open import open_storage

    with tempfile.TemporaryDirectory() as folder:
        log, staging = DeltaLog(open_storage(root)), open_storage(folder)
        start, cpu = time.perf_counter(), time.process_time()
        frozen = freeze_snapshot(log, version, staging, "snapshots")
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        # the batches of a whole row group, because one that begins inside of a group reads the rows before it in vain
        ends = [(index, frozen.num_files - 10_000 + index) for index in range(0, 10_000, 1_000)]
        planned = [[_cpu_of_a_batch(log, frozen, staging, index) for index in both] for both in ends]
    return {
        "seconds": seconds,
        "cpu": cpu,
        "files": frozen.num_files,
        "first": sum(first for first, _ in planned) / len(planned),
        "last": sum(last for _, last in planned) / len(planned),
    }


def _cpu_of_a_batch(log: DeltaLog, frozen: FrozenSnapshot, staging: Storage, index: int) -> float:
    """Return the CPU seconds of a plan of one batch of 1,000 files from ``index`` on, as a run of its own makes it."""
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planning.plan import BatchPlanner

    state, options = log.state_at(frozen.version), SourceOptions(max_files_per_batch=1_000)
    start = time.process_time()
    position = Offset(state.metadata.id, frozen.version, index - 1, is_initial_snapshot=True)
    planner = BatchPlanner(log, position, state, options, frozen.version, snapshot=frozen, snapshot_storage=staging)
    assert next(iter(planner)).num_files == 1_000
    return time.process_time() - start


def _digest(digest: Any, paths: Any, sizes: Any) -> None:
    """Add the rows to the digest, independently of the batches' types and boundaries."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.string()
    lines = pc.binary_join_element_wise(pc.cast(paths, text), pc.cast(sizes, text), "\n", " ")
    for chunk in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
        digest.update(memoryview(chunk.buffers()[2]))
