"""Watching many streams in one process, as ``fds monitor`` does."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

_TABLE_ID = "5d3c1f0e-0000-4000-8000-000000000000"
#: Versions of each table, all of which its stream has read.
_VERSIONS = 10


def watch(streams: int, rounds: int) -> dict[str, Any]:
    """Watch ``streams`` local streams that do not change: the first round, ``rounds`` rounds, and a full one.

    Returns:
        By kind of round the CPU seconds, the seconds and the requests of a round.
    """
    from airflow_provider_fds.delta.storage.local import LocalStorage
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.monitoring import all_statuses as statuses
    from airflow_provider_fds.stream.monitoring import monitor
    from tests.counting_storage import CountingStorage, Request

    requests: list[Request] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_streams(folder, streams)

        def opened(uri: str, _options: Any = None) -> Any:
            return CountingStorage(LocalStorage(uri.removeprefix("file://")), requests)

        def context() -> StreamContext:
            return StreamContext(
                staging_uri=f"{folder}/staging",
                deployment="bench",
                actor=Actor(deployment="bench"),
                owner=Owner.of_plan("bench"),
                owner_is_running=lambda _owner: False,
            )

        found: dict[str, list[tuple[float, float, Counter[str]]]] = {"first": [], "unchanged": [], "full": []}
        connect = "airflow_provider_fds.stream.connected_stream.open_storage"
        tables = "airflow_provider_fds.delta.storage.open.open_storage"
        with mock.patch(tables, opened), mock.patch(connect, opened):
            assert statuses  # imported before the clock starts
            watched = monitor.StreamMonitor(context, recheck_every=rounds + 1)
            for number in range(rounds + 2):
                requests.clear()
                cpu, began = os.times(), time.perf_counter()
                conditions = Counter(one.condition for one in watched.poll())
                took, after = time.perf_counter() - began, os.times()
                assert conditions == {"up_to_date": streams}, conditions
                kind = "first" if not number else "full" if number == rounds + 1 else "unchanged"
                seconds = after.user + after.system - cpu.user - cpu.system
                found[kind].append((seconds, took, Counter(request.kind for request in requests)))
    return {
        kind: {
            "cpu": statistics.median(one[0] for one in samples),
            "time": statistics.median(one[1] for one in samples),
            "requests": samples[-1][2],
        }
        for kind, samples in found.items()
    }


def look(streams: int) -> dict[str, float]:
    """Look at ``streams`` local streams once, as ``fds status --all`` and the page "Delta streams" do.

    Returns:
        Seconds and CPU seconds of the statuses of all streams; seconds until the page has its rows as JSON, the first
        time, and when
        a single status file has changed.
    """
    import msgspec

    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.monitoring.all_statuses import all_statuses, find_ledger, open_stream
    from airflow_provider_fds.stream.monitoring.status import status_of
    from airflow_provider_fds.stream.monitoring.status_file import write_status_file
    from airflow_provider_fds.ui.folders import StatusFolder
    from airflow_provider_fds.ui.rows import row_of

    with tempfile.TemporaryDirectory() as name:
        write_streams(Path(name), streams)
        context = StreamContext(
            staging_uri=f"{name}/staging",
            deployment="bench",
            actor=Actor(deployment="bench"),
            owner=Owner.of_plan("bench"),
            owner_is_running=lambda _owner: False,
        )
        staging = context.open_staging()
        for name_of_stream in staging.list_folders(""):
            # as a run leaves it: the fold of its entries, with what it knows of the table
            ledger = find_ledger(staging, name_of_stream)
            assert isinstance(ledger, Ledger)
            connected = open_stream(context, ledger)
            write_status_file(staging, status_of(connected), connected.state, written_by="run")
            connected.save_fold()
        began, cpu = time.perf_counter(), time.process_time()
        statuses = list(all_statuses(context))
        found = {"status": time.perf_counter() - began, "status_cpu": time.process_time() - cpu}
        assert Counter(one.condition for one in statuses) == {"up_to_date": streams}
        folder = StatusFolder(f"{name}/staging", dict)
        for kind in ("page", "page_again"):
            began = time.perf_counter()
            rows = [row_of(row, folder.uri, datetime.now(UTC)) for row in folder.read().rows.values()]
            msgspec.json.encode(sorted(rows, key=lambda row: (row["name"], row["staging"])))
            found[kind] = time.perf_counter() - began
            assert len(rows) == streams
            write_status_file(staging, statuses[0], None, written_by="monitor")
            folder.forget()
    return found


def write_streams(folder: Path, streams: int) -> None:
    """Write tables of 10 versions, and streams that have read them."""
    from airflow_provider_fds.delta.storage.open import canonical_uri, open_storage
    from airflow_provider_fds.ledger.entries.epoch_entries import Created, Opened
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.source.offset import Offset
    from tests.bench.generate_log import write_log

    staging, actor = open_storage(f"{folder}/staging"), Actor(deployment="bench")
    for number in range(streams):
        name, table = f"s{number:04d}", folder / "tables" / f"s{number:04d}"
        write_log(table, _VERSIONS - 1, 1)
        ledger = Ledger(staging, name)
        ledger.find()
        uri = canonical_uri(str(table))
        ledger.execute(Created(uuid=name, name=name, table=uri, deployment="bench"), actor)
        start = Offset.after(_VERSIONS - 1, _TABLE_ID).to_json()
        ledger.execute(Opened(epoch=1, start=start, table_id=_TABLE_ID), actor)


if __name__ == "__main__":
    print(json.dumps(watch(1_000, 5), indent=1))
