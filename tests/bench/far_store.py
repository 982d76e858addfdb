"""The requests of a stream to a store far away: those that wait for each other."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench import driver_report
from tests.bench.loopback_store import Request, Server, in_thread, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.stream.connected_stream import StreamContext

_BYTES_PER_SECOND = 100e6
_ROOT = "s3://bench"


class Step(NamedTuple):
    """A step: its requests, in the order of their starts, and how long it took."""

    requests: list[Request]
    seconds: float

    def chain(self) -> list[Request]:
        """Return the longest sequence of requests of which each began after the one before was answered."""
        chain: list[Request] = []
        for request in sorted(self.requests, key=lambda one: one.end):
            if not chain or request.start >= chain[-1].end:
                chain.append(request)
        return chain

    def of_streams(self) -> dict[str, Step]:
        """Return the requests to staging that are about one stream, by its name."""
        found: dict[str, list[Request]] = {}
        for request in self.requests:
            if name := re.match(r"staging/(?:\.status/)?(s\d+)\b", request.key):
                found.setdefault(name[1], []).append(request)
        return {name: Step(requests, self.seconds) for name, requests in found.items()}

    def describe(self) -> list[str]:
        """Return the requests of :meth:`chain`, numbers of keys as ``#`` and digests as ``…``."""
        return [f"{one.method} {shape(one.key)}" for one in self.chain()]


def shape(key: str) -> str:
    """Return a key without what differs between streams, batches and entries."""
    key = re.sub(r"\d{8}T\d{6}-[0-9a-f]{12}", "…", key)
    key = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{16,64}\b(?<!\d{20})", "…", key)
    return re.sub(r"\d+", "#", key)


def steps(batches: int, streams: int, delay: float, *, history: int = 0) -> dict[str, Step]:
    """Take a stream through a run of ``batches`` batches, and look at a folder of ``streams`` such streams.

    Args:
        batches: Batches of the run.
        streams: Streams in staging, the one of the run included.
        delay: Seconds that each request takes.
        history: Commits of the source that the stream does not read.
    """
    server = Server(dict(_source(history + batches)), delay=0, bytes_per_second=_BYTES_PER_SECOND, is_recording=True)
    with in_thread(server) as port:
        return dict(_steps(server, port, batches, streams, delay, history))


def numbers(batches: int, streams: int, delay: float) -> dict[str, dict[str, float]]:
    """Return the numbers of each step of :func:`steps`: its requests, those in sequence, and seconds."""
    return {
        name: {"requests": len(step.requests), "in_sequence": len(step.chain()), "seconds": step.seconds}
        for name, step in steps(batches, streams, delay).items()
    }


def _steps(
    server: Server, port: int, batches: int, streams: int, delay: float, history: int
) -> Iterator[tuple[str, Step]]:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.monitoring.all_statuses import all_statuses
    from airflow_provider_fds.stream.monitoring.status import status_of
    from airflow_provider_fds.stream.monitoring.status_file import write_status_file
    from airflow_provider_fds.ui.folders import StatusFolder

    sink = DeltaAppendSink(f"{_ROOT}/sink")

    def timed(work: Callable[[], Any]) -> tuple[Step, Any]:
        server.recorded.clear()
        server.delay = delay
        began = time.perf_counter()
        try:
            found = work()
        finally:
            server.delay = 0.0
        return Step(sorted(server.recorded, key=lambda one: one.start), time.perf_counter() - began), found

    # the first run creates the stream, the second one is as most are
    for run in ("first run", "run"):
        if run == "run":
            _append(server, history + batches, batches)
        session = _session(port, f"{run}", history)
        begun, work = timed(lambda session=session: session.begin(sink))
        yield f"{run}: plan", begun
        written, spec_uri = timed(lambda session=session, work=work: session.job(work, sink))
        yield f"{run}: specification of the job", written
        _load(server, session, spec_uri, sink)
        committed, collected = timed(lambda session=session, work=work: session.collect(work))
        assert len(collected.committed) == batches, collected
        yield f"{run}: verification and commit", committed
    for number in range(1, streams):
        _copy_stream(server, "s0", f"s{number}")
    context = _context(port, "status")
    yield "status", timed(lambda: status_of(_session(port, "status", history).connected))[0]
    found, statuses = timed(lambda: list(all_statuses(context)))
    assert len(statuses) == streams
    yield "status --all", found
    staging = context.open_staging()
    for one in statuses:
        write_status_file(staging, one, None, written_by="monitor")
    folder = StatusFolder(f"{_ROOT}/staging", lambda: options(port))
    found, page = timed(folder.read)
    assert len(page.rows) == streams, page
    yield "page", found


def _source(commits: int) -> Iterator[tuple[str, bytes]]:
    from tests.bench.generate_log import write_log

    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder) / "t", commits, 3)
        for path in (Path(folder) / "t" / "_delta_log").iterdir():
            yield f"t/_delta_log/{path.name}", path.read_bytes()


def _append(server: Server, newest: int, commits: int) -> None:
    for key, data in _source(newest + commits):
        if key not in server.objects:
            server.put(key, data)


def _context(port: int, run: str) -> StreamContext:
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.places import Paths
    from airflow_provider_fds.stream import StreamContext

    return StreamContext(
        staging_uri=f"{_ROOT}/staging",
        staging_options=options(port),
        places=Paths(options(port)),
        deployment="bench",
        actor=Actor(deployment="bench", user="bench", host="bench"),
        owner=Owner(kind="cli", deployment="bench", run_id=run),
        owner_is_running=lambda _owner: False,
    )


def _session(port: int, run: str, history: int, name: str = "s0") -> Any:
    from airflow_provider_fds.stream import DeltaStream, StreamSession

    stream = DeltaStream(name, table=f"{_ROOT}/t", starting_version=history + 1, max_files_per_batch=3)
    return StreamSession(stream, _context(port, run))


def _load(server: Server, session: Any, spec_uri: str, sink: Any) -> None:
    """Do what the driver does with a job, except the rows."""
    from airflow_provider_fds.batch.report import report_name
    from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.batch.transactions import txn_app_id, txn_version
    from airflow_provider_fds.delta.names import commit_key

    staging = session.connected.staging
    job = JobSpec.from_json(staging.get(spec_uri.replace("s3a:", "s3:").removeprefix(staging.uri + "/"))[0])
    for batch in job.batches:
        version = sum(1 for key in server.objects if key.startswith("sink/_delta_log/"))
        told = {"operation": "WRITE", "userMetadata": commit_metadata(batch, job.attempt_id, {})}
        lines = [{"commitInfo": told}]
        if version == 0:
            lines.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            schema = json.dumps({"type": "struct", "fields": []})
            lines.append({"metaData": {"id": "sink", "schemaString": schema, "partitionColumns": []}})
        lines.append({"txn": {"appId": txn_app_id(batch.uuid), "version": txn_version(batch.epoch, batch.batch_id)}})
        server.put(f"sink/{commit_key(version)}", "".join(json.dumps(line) + "\n" for line in lines).encode())
        report = driver_report.written(job, batch, version)
        name = report_name(batch.epoch, batch.batch_id, job.attempt_id)
        server.put(f"staging/{session.stream.name}/attempts/{name}", report.to_json())


def _copy_stream(server: Server, name: str, to: str) -> None:
    from airflow_provider_fds.ledger.entries.entry import digest_of

    digests: dict[str, str] = {}
    prefix = f"staging/{name}/ledger/"
    for key in sorted(key for key in server.objects if key.startswith(prefix)):
        if "_checkpoint" in key:
            continue
        data = server.objects[key].replace(f'"{name}"'.encode(), f'"{to}"'.encode())
        for old, new in digests.items():
            data = data.replace(old.encode(), new.encode())
        digests[digest_of(server.objects[key])] = digest_of(data)
        server.put(key.replace(f"staging/{name}/", f"staging/{to}/"), data)


def _print(found: dict[str, Step]) -> None:
    for name, step in found.items():
        chain = step.describe()
        print(f"{name}: {len(step.requests)} requests, {len(chain)} in sequence, {step.seconds:.2f} s")
        for line in chain:
            print(f"    {line}")


if __name__ == "__main__":
    import sys

    _print(steps(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
