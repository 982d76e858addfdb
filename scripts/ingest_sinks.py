"""Load a small table into one sink of each kind with the Spark of this environment, and compare the rows.

    scripts/ingest_sinks.py FOLDER [--remote sc://HOST:PORT] [SINK …]

The batches are planned, loaded and committed as `fds run` does it. Prints a line for each sink,
``DeltaAppendSink: passed, Apache-Spark/3.5.7 Delta-Lake/3.3.2`` or ``DeltaAppendSink: failed, …``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from airflow_provider_fds.backends.base import Application, UserArguments
from airflow_provider_fds.backends.registry import command_line_backend
from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink, ForeachBatchSink, Sink
from airflow_provider_fds.stream.connected_stream import StreamContext
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
from airflow_provider_fds.stream.position.data_interval import DataInterval
from airflow_provider_fds.stream.run.session import StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable


#: A user function that appends each batch once. It is a module of its own, as a user has it.
FUNCTION = """
TARGET = {target!r}


def append(df, batch):
    rows = df.drop("_commit_version", "_commit_timestamp")
    rows.write.format("delta").mode("append").options(**batch.txn_options("all")).save(TARGET)
"""

Rows = Counter[tuple[Any, ...]]


class WrongRowsError(Exception):
    """The sink has other rows than it should have."""


@dataclass(frozen=True)
class Place:
    """The folder of one sink: its source, its sink, and the ledger of its stream."""

    folder: Path

    @property
    def source(self) -> str:
        """Path of the source."""
        return str(self.folder / "source")

    @property
    def sink(self) -> str:
        """Path of the sink."""
        return str(self.folder / "sink")

    def append(self, name: str, *ids: int, **options: Any) -> None:
        """Commit rows to the source."""
        rows = pa.table({"id": list(ids), "name": [f"{name} {i}" for i in ids]})
        deltalake.write_deltalake(self.source, rows, mode="append", **options)

    def change(self) -> None:
        """Make a source with a change data feed: inserts, an update, a delete and a later insert."""
        self.append("first", *range(6), configuration={"delta.enableChangeDataFeed": "true"})
        deltalake.DeltaTable(self.source).update({"name": "'updated'"}, predicate="id < 2")
        deltalake.DeltaTable(self.source).delete("id = 1")
        self.append("late", 10)

    def stream(self, **options: Any) -> DeltaStream:
        """Return the stream of the source."""
        return DeltaStream("orders", table=self.source, **options)

    def context(self) -> StreamContext:
        """Return the context of a new run that nobody else gets in the way of."""
        run_id = f"matrix-{time.time_ns()}"
        return StreamContext(
            staging_uri=str(self.folder / "staging"),
            deployment="matrix",
            actor=Actor(deployment="matrix", user="matrix", host="matrix"),
            owner=Owner(kind="cli", deployment="matrix", run_id=run_id),
            owner_is_running=lambda _owner: False,
            checkpoints=FileCheckpointStore(self.folder / "checkpoint.json"),
        )

    def rows(self, table: str) -> Rows:
        """Return the ids and names of a table, as a multiset."""
        columns = deltalake.DeltaTable(table).to_pyarrow_table(columns=["id", "name"]).to_pydict()
        return Counter(zip(columns["id"], columns["name"], strict=True))


def table_sink(place: Place, load: Callable[[StreamSession, Sink], None]) -> None:
    sink = DeltaAppendSink(place.sink)
    for first in (0, 20):
        place.append("row", *range(first, first + 10))
        place.append("row", *range(first + 10, first + 20))
        stream = place.stream(starting_version=0, max_versions_per_batch=1)
        load(StreamSession(stream, place.context()), sink)
        expect(place.rows(place.sink), place.rows(place.source))


def merge_sink(place: Place, load: Callable[[StreamSession, Sink], None]) -> None:
    place.change()
    stream = place.stream(starting_version=0, read_change_feed=True, max_versions_per_batch=2)
    load(StreamSession(stream, place.context()), DeltaMergeSink(place.sink, keys=("id",)))
    expect(place.rows(place.sink), place.rows(place.source))


def history_sink(place: Place, load: Callable[[StreamSession, Sink], None]) -> None:
    place.change()
    stream = place.stream(starting_version=0, read_change_feed=True, max_versions_per_batch=2)
    load(StreamSession(stream, place.context()), DeltaMergeSink(place.sink, keys=("id",), scd=2))
    history = deltalake.DeltaTable(place.sink).to_pyarrow_table()
    current = history.filter(history.column("_is_current")).to_pydict()
    expect(Counter(zip(current["id"], current["name"], strict=True)), place.rows(place.source))
    # six inserts, two updates (one of which is deleted later) and one more insert
    expect(Counter([(history.num_rows,)]), Counter([(9,)]))


def replace_sink(place: Place, load: Callable[[StreamSession, Sink], None]) -> None:
    begin = datetime.now(UTC) - timedelta(hours=1)
    place.append("row", *range(10))
    of_interval = place.rows(place.source)
    time.sleep(0.01)
    end = datetime.now(UTC)
    time.sleep(0.01)
    place.append("next interval", 10)
    sink = DeltaReplaceSink(place.sink, provenance=True)
    # the second run replaces the rows of the first
    for _ in range(2):
        stream = place.stream(read="data_interval")
        load(StreamSession(stream, place.context(), DataInterval(begin, end)), sink)
        expect(place.rows(place.sink), of_interval)
    if deltalake.DeltaTable(place.sink).version() != 1:
        raise WrongRowsError("the second run did not replace the rows of the first")


def foreach_sink(place: Place, load: Callable[[StreamSession, Sink], None]) -> None:
    (place.folder / "matrix_function.py").write_text(FUNCTION.format(target=place.sink))
    # for the driver, which spark-submit starts, and for a server's client, which is this process
    sys.path.insert(0, str(place.folder))
    os.environ["PYTHONPATH"] = f"{place.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    place.append("row", *range(10))
    place.append("row", *range(10, 20))
    sink = ForeachBatchSink("matrix_function:append", writes={"all": place.sink})
    load(StreamSession(place.stream(starting_version=0, max_versions_per_batch=1), place.context()), sink)
    expect(place.rows(place.sink), place.rows(place.source))


SINKS: dict[str, Callable[[Place, Callable[[StreamSession, Sink], None]], None]] = {
    "DeltaAppendSink": table_sink,
    "DeltaMergeSink": merge_sink,
    "DeltaMergeSink(scd=2)": history_sink,
    "DeltaReplaceSink": replace_sink,
    "ForeachBatchSink": foreach_sink,
}


def expect(found: Counter[Any], wanted: Counter[Any]) -> None:
    """Compare two multisets of rows.

    Raises:
        WrongRowsError: They differ.
    """
    if found != wanted:
        raise WrongRowsError(
            f"missing {sorted((wanted - found).items())}, not expected {sorted((found - wanted).items())}"
        )


def loader(remote: str | None) -> Callable[[StreamSession, Sink], None]:
    """Return what loads all that is new, with spark-submit or on a Spark Connect server."""

    def load(session: StreamSession, sink: Sink) -> None:
        backend = command_line_backend("local[2]", remote, UserArguments(), lambda line: print(line, file=sys.stderr))
        backend.check()
        while (work := session.begin(sink)).status in ("work", "fence"):
            outcome = backend.run(Application(session, sink, work, session.job(work, sink)))
            collected = session.collect(work)
            if collected.failure is not None:
                raise collected.failure from outcome.error
            if session.stream.reads_by_interval:
                break

    return load


def main() -> int:
    """Load the named sinks, or all."""
    parser = argparse.ArgumentParser(description="Load one sink of each kind.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--remote", metavar="sc://HOST:PORT")
    parser.add_argument("sinks", nargs="*", metavar="SINK", help=f"of {', '.join(SINKS)} (default: all)")
    arguments = parser.parse_intermixed_args()
    load, is_failed = loader(arguments.remote), False
    for number, name in enumerate(arguments.sinks or SINKS):
        place = Place(arguments.folder.absolute() / str(number))
        shutil.rmtree(place.folder, ignore_errors=True)
        place.folder.mkdir(parents=True)
        try:
            SINKS[name](place, load)
            engine = deltalake.DeltaTable(place.sink).history(1)[0].get("engineInfo", "")
            print(f"{name}: passed, {engine}", flush=True)
        except Exception as error:  # noqa: BLE001 - the other sinks are tried all the same
            is_failed = True
            traceback.print_exc()
            print(f"{name}: failed, {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
    return int(is_failed)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # deltalake's threads may abort an interpreter that ends in the ordinary way, after all is said
    os._exit(code)
