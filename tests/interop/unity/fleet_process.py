"""A fleet in a process of its own, which a test can kill. Argument: a file in JSON, see :func:`main`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.fleet_application import FleetApplication, FleetPart
from airflow_provider_fds.backends.registry import command_line_backend
from airflow_provider_fds.catalog.registry import catalog_at
from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.cli.arguments import owner_is_running, person, process_owner
from airflow_provider_fds.fleet.session import FleetSession
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.places import Paths
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DeltaStream, StreamContext

if TYPE_CHECKING:
    from airflow_provider_fds.places import Places


def main(spec: dict[str, Any]) -> None:
    """Load each stream of ``streams`` (name, table, URI of its catalog) on the Spark at ``remote``; print outcomes.

    ``s3`` are the options of the storage connection for tables on S3, ``data`` is where files of rows may be.
    """

    def storage(uri: str) -> dict[str, Any]:
        return spec["s3"] if uri.startswith("s3://") else {}

    def context_of(one: FleetStream) -> StreamContext:
        catalog = one.stream.catalog_conn_id
        places: Places = Paths() if catalog is None else CatalogPlaces(catalog_at(catalog), storage)
        return StreamContext(
            staging_uri=spec["staging"],
            deployment="test",
            actor=person("test"),
            owner=process_owner("test"),
            owner_is_running=owner_is_running,
            places=places,
        )

    streams = [
        FleetStream(
            DeltaStream(
                name,
                table=table,
                catalog_conn_id=catalog,
                starting_version="earliest",
                allowed_roots=[spec["data"]],
            ),
            DeltaAppendSink(f"{spec['sinks']}/{name}"),
        )
        for name, table, catalog in spec["streams"]
    ]
    session = FleetSession(streams, context_of, fleet="fleet", deployment="test")
    backend = command_line_backend(None, spec["remote"], UserArguments(), lambda _: None)
    while session.next_work():
        uri = session.write_jobs(parallelism=2, max_bytes_in_flight=None)
        if uri is not None:
            parts = tuple(FleetPart(run.session, run.stream.sink, run.work, run.spec_uri) for run in session.runs)
            application = FleetApplication(parts, uri, session.commit_reported, parallelism=2)
            session.collect(backend.run_fleet(application).error)
    print(json.dumps({one.stream: [one.outcome, str(one.error or "")] for one in session.finish().outcomes}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
