"""One run of a fleet as a task does it: ``python -m tests.chaos.fleet_run ROOT RUN NAME…``.

A run takes over what an earlier one has planned. With the same name it is a retry of that run. The tables are the
folders ``ROOT/tables/NAME``, the sinks ``ROOT/sinks/NAME``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.fleet_application import FleetApplication, FleetPart
from airflow_provider_fds.backends.registry import command_line_backend
from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.fleet.session import FleetSession
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DeltaStream, StreamContext


def main(root: Path, run: str, names: list[str]) -> int:
    """Load the streams until nothing is left, and print the outcome of each."""
    identity = {"deployment": "chaos", "dag_id": "fleet", "run_id": run, "task_id": "load"}
    mark = root / f"{run}.begun"
    retry = mark.exists()
    mark.touch()

    def context_of(one: FleetStream) -> StreamContext:
        return StreamContext(
            staging_uri=str(root / "staging"),
            deployment="chaos",
            actor=Actor(**identity),
            owner=Owner(kind="airflow", **identity),
            owner_is_running=lambda _owner: False,
            checkpoints=FileCheckpointStore(root / f"{one.name}.json"),
        )

    def stream(name: str) -> FleetStream:
        options = {"starting_version": 0, "max_files_per_batch": 2}
        return FleetStream(
            DeltaStream(name, table=str(root / "tables" / name), **options), DeltaAppendSink(str(root / "sinks" / name))
        )

    backend = command_line_backend("local[2]", None, UserArguments(), lambda line: print(line, flush=True))
    session = FleetSession([stream(name) for name in names], context_of, fleet="fleet", deployment="chaos", retry=retry)
    while session.next_work():
        uri = session.write_jobs(parallelism=len(names))
        if uri is not None:
            parts = tuple(FleetPart(one.session, one.stream.sink, one.work, one.spec_uri) for one in session.runs)
            application = FleetApplication(parts, uri, session.commit_reported, parallelism=len(names))
            session.collect(backend.run_fleet(application).error)
    result = session.finish()
    print(result.describe())
    print(json.dumps(result.counts), flush=True)
    return 0 if result.error() is None else 6


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
