"""Batches into a PostgreSQL on this machine: ``PostgresSink`` beside Spark's JDBC writer, in one warm session."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.loading import _load, _sessions, _work_off
from tests.bench.reading import _session
from tests.postgresql import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Spark's writer needs the driver; FDS does not.
JDBC_DRIVER = "org.postgresql:postgresql:42.7.14"
#: A server that is not busy with checkpoints all the time; what a crash would lose is as usual.
_SETTINGS = ("shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=30min", "autovacuum=off")
_COLUMNS = {
    "id": "bigint", "customer": "bigint", "seq": "bigint", "amount": "numeric(18,2)", "price": "double precision",
    "flag": "boolean", "day": "date", "at": "timestamptz", "name": "text", "note": "text",
}  # fmt: skip
_ROWS = (
    "id", "id * 7919 % 100000 AS customer", "id * 3 AS seq", "CAST(id % 1000000 / 100 AS DECIMAL(18,2)) AS amount",
    "sqrt(id) AS price", "id % 3 = 0 AS flag", "date_add(DATE'2020-01-01', CAST(id % 2000 AS INT)) AS day",
    "timestamp_micros(1600000000000000 + id * 1234567) AS at", "concat('customer name ', id % 5000) AS name",
    "if(id % 10 = 0, NULL, sha2(CAST(id AS STRING), 256)) AS note",
)  # fmt: skip


class _Database:
    """The database of one measurement, and the CPU time of everything that takes part."""

    def __init__(self, port: int, postmaster: int) -> None:
        self.port = port
        self._postmaster = postmaster

    def run(self, *statements: str) -> Any:
        """Run statements in one transaction; return the first row of the last one."""
        import psycopg

        with psycopg.connect(host="127.0.0.1", port=self.port, user="fds", dbname="postgres") as connection:
            for statement in statements:
                done = connection.execute(statement)
            return done.fetchone() if done.description else None

    def checkpoint(self) -> None:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="fds", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute("CHECKPOINT")

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of this process, its JVM and the server, with their ended children."""
        found: dict[int, tuple[int, float]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            found[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
        total = 0.0
        for process, (_, seconds) in found.items():
            at = process
            while at in found and at not in (os.getpid(), self._postmaster):
                at = found[at][0]
            total += seconds if at in (os.getpid(), self._postmaster) else 0.0
        return total


@contextmanager
def _database() -> Iterator[_Database]:
    with running_server("fds", *_SETTINGS, on_disk=True) as server:
        for name, value in {"HOST": "127.0.0.1", "PORT": server.port, "USER": "fds", "DATABASE": "postgres"}.items():
            os.environ[f"PG{name}"] = str(value)
        assert server.pid is not None
        yield _Database(server.port, server.pid)


def _source(folder: Path, frame: Any) -> Path:
    """Write a table whose version 1 has the rows."""
    table = folder / "source"
    frame.where("false").write.format("delta").save(str(table))
    frame.write.format("delta").mode("append").save(str(table))
    return table


def _jdbc(frame: Any, database: _Database, table: str) -> None:
    writer = frame.write.format("jdbc").mode("append").option("driver", "org.postgresql.Driver")
    url = f"jdbc:postgresql://127.0.0.1:{database.port}/postgres?reWriteBatchedInserts=true"
    writer.options(url=url, dbtable=table, user="fds", batchsize=10_000).save()


def append(rows: int, rounds: int) -> dict[str, float]:
    """Append a batch, from the plan to the committed offset, beside the JDBC writer as it is tuned."""
    with tempfile.TemporaryDirectory() as name, _database() as database:
        folder = Path(name)
        spark = _session(folder, packages=JDBC_DRIVER)
        source = _source(folder, spark.range(0, rows, 1, 4).selectExpr(*_ROWS))

        def load() -> None:
            from airflow_provider_fds.sinks import PostgresSink

            _load(spark, source, PostgresSink("public.orders"))

        def write() -> None:
            _jdbc(spark.read.format("delta").load(str(source)), database, "public.orders")

        ddl = ", ".join(f"{column} {kind}" for column, kind in _COLUMNS.items())
        sums = (
            "SELECT count(*), sum(id), sum(amount), sum(hashtext(note)::bigint), min(at), max(day) FROM public.orders"
        )

        def fresh() -> None:
            database.run("DROP TABLE IF EXISTS public.orders", f"CREATE TABLE public.orders ({ddl})")
            database.checkpoint()

        try:
            return _in_turn(database, rounds, load, write, fresh, lambda: database.run(sums))
        finally:
            spark.stop()


def merge(rows: int, changed: int, rounds: int) -> dict[str, float]:
    """Merge changed rows into a big table, nine of ten with a key that it has; each time the next batch of one stream.

    The hand-written way is the JDBC writer into an unlogged table, and then ``UPDATE … FROM`` and an insert of what is
    missing. Before each, both find the table with as many dead rows.
    """
    with tempfile.TemporaryDirectory() as name, _database() as database:
        folder = Path(name)
        spark = _session(folder, packages=JDBC_DRIVER)
        ddl = ", ".join(f"{column} {kind}" for column, kind in _COLUMNS.items())
        database.run(
            f"CREATE TABLE public.big ({ddl})",
            "INSERT INTO public.big SELECT i, i * 7919 % 100000, i * 3, i % 1000000 / 100.0, sqrt(i), i % 3 = 0, "
            "DATE '2020-01-01' + (i % 2000)::int, to_timestamp(1600000000 + i), 'customer name ' || i % 5000, "
            f"md5(i::text) || md5((i + 1)::text) FROM generate_series(1::bigint, {rows}) i",
            "ALTER TABLE public.big ADD PRIMARY KEY (id)",
            "ANALYZE public.big",
        )
        number = 0

        def changes() -> Any:
            key = f"IF(id % 10 = 0, {rows + number * changed} + id, 1 + (id * 104729 + {number * 7}) % {rows}) AS id"
            frame = spark.range(0, changed, 1, 4).selectExpr(*_ROWS)
            return frame.selectExpr(key, *(one for one in _COLUMNS if one != "id"))

        def load() -> None:
            from airflow_provider_fds.sinks import PostgresSink

            _work_off(spark, begin(), PostgresSink("public.big", mode="merge", keys=("id",)))

        def write() -> None:
            database.run("CREATE UNLOGGED TABLE public.staged (LIKE public.big)")
            _jdbc(spark.read.format("delta").load(str(other)), database, "public.staged")
            values = ", ".join(f"{one} = s.{one}" for one in _COLUMNS if one != "id")
            database.run(
                f"UPDATE public.big t SET {values} FROM public.staged s WHERE t.id = s.id",
                "INSERT INTO public.big SELECT * FROM public.staged s "
                "WHERE NOT EXISTS (SELECT FROM public.big t WHERE t.id = s.id)",
                "DROP TABLE public.staged",
            )

        def fresh() -> None:
            nonlocal number, other
            number += 1
            if number % 2:
                changes().write.format("delta").mode("append").save(str(source))
            else:
                other = _source(folder / str(number), changes())
            database.checkpoint()

        def count() -> Any:
            found = database.run("SELECT count(*) FROM public.big")
            # a tenth of the keys are new each time
            assert found == (rows + number * len(range(0, changed, 10)),), found

        source, other = folder / "stream", folder
        changes().where("false").write.format("delta").save(str(source))
        begin = _sessions(source)
        try:
            return _in_turn(database, rounds, load, write, fresh, count)
        finally:
            spark.stop()


def _in_turn(
    database: _Database,
    rounds: int,
    ours: Callable[[], None],
    theirs: Callable[[], None],
    before: Callable[[], None],
    result: Callable[[], Any],
) -> dict[str, float]:
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    cpu: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(rounds + 1):
        results = []
        for kind, way in (("ours", ours), ("theirs", theirs)):
            before()
            used, start = database.cpu_seconds(), time.perf_counter()
            way()
            took, used = time.perf_counter() - start, database.cpu_seconds() - used
            results.append(result())
            if number:
                seconds[kind].append(took)
                cpu[kind].append(used)
        assert results[0] == results[1], results
    return {
        **{kind: statistics.median(seconds[kind]) for kind in seconds},
        **{f"cpu_{kind}": statistics.median(cpu[kind]) for kind in cpu},
        "ratio": statistics.median(a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)),
        "cpu_ratio": statistics.median(a / b for a, b in zip(cpu["ours"], cpu["theirs"], strict=True)),
    }
