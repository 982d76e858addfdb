"""A fleet of a table that Unity Catalog manages, a table of a Hive metastore and a path, while names change.

The log of the managed table is on S3, where only keys of the catalog are good, for a few seconds. Its files of rows are
on local disk: the tests of ``make s3`` let Spark read with such keys.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from tests.interop.catalog.metastore import metastore_program, register, unregister
from tests.interop.unity.managed import ManagedTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.connect_server import RunningServer
    from tests.interop.unity.server import UnityServer
    from tests.interop.unity.sts import KeyedLake, Sts

#: Shorter than a run of the fleet.
LIFETIME_SECONDS = 4.0


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "metastore"
    folder.mkdir()
    with metastore_program(folder) as program:
        yield f"thrift://127.0.0.1:{program.receive('port')}"


class Writer:
    """Appends to the tables, commit by commit, until it is told to stop.

    Attributes:
        ids: By table, all ids that it wrote.
        paused: Tables that get nothing now.
    """

    def __init__(self, managed: ManagedTable, folders: dict[str, Path]) -> None:
        self.managed = managed
        self.folders = folders
        self.ids: dict[str, list[int]] = defaultdict(list)
        self.paused: set[str] = set()
        self._stopped = threading.Event()
        self.turn = threading.Lock()
        self._thread = threading.Thread(target=self._write)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.append_to_all()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._failure is None, self._failure

    def _write(self) -> None:
        try:
            while not self._stopped.wait(1.5):
                with self.turn:
                    self.append_to_all()
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            self._failure = error

    def append_to_all(self) -> None:
        for name in ("managed", *self.folders):
            if name in self.paused:
                continue
            first = len(self.ids[name])
            ids = list(range(first, first + 5))
            if name == "managed":
                self._append_managed(ids)
            else:
                table = pa.table({"id": pa.array(ids, pa.int64())})
                deltalake.write_deltalake(self.folders[name], table, mode="append")
            self.ids[name] += ids

    def _append_managed(self, ids: list[int]) -> None:
        table = self.managed
        version = table.append_rows(ids)
        table.lose(version)
        table.leave_half_written(version + 1)
        if version % 2 == 0:
            table.publish(version - 1, remove=version % 4 == 0)
            table.publish(version)
            table.report_published(version)


class Fleet:
    """Runs of the fleet, each in a process of its own."""

    def __init__(self, folder: Path, remote: str, s3: dict[str, str]) -> None:
        self._folder = folder
        self._remote = remote
        self._s3 = s3
        self.streams: dict[str, tuple[str, str | None]] = {}

    def run(self, fault: str = "") -> tuple[int, dict[str, list[str]]]:
        """Run it; return the exit code, and of each stream the outcome and the error."""
        spec = {
            "staging": str(self._folder / "staging"),
            "sinks": str(self._folder / "sinks"),
            "remote": self._remote,
            "s3": self._s3,
            "data": (self._folder / "lake").as_uri(),
            "streams": [[name, *found] for name, found in self.streams.items()],
        }
        path = self._folder / "fleet.json"
        path.write_text(json.dumps(spec))
        marks = self._folder / f"marks-{fault.replace('#', '-')}"
        marks.mkdir(exist_ok=True)
        faults = {"FDS_TEST_FAULTS": fault, "FDS_TEST_FAULT_MARKS": str(marks)} if fault else {}
        done = subprocess.run(
            [sys.executable, "-m", "tests.interop.unity.fleet_process", str(path)],
            cwd=Path(__file__).parents[3],
            env={**os.environ, **faults},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        if done.returncode not in (0, -signal.SIGKILL):
            pytest.fail(done.stderr[-4000:])
        return done.returncode, {} if done.returncode else json.loads(done.stdout.splitlines()[-1])

    def ids(self, name: str) -> list[int]:
        table = deltalake.DeltaTable(self._folder / "sinks" / name).to_pyarrow_table()
        return sorted(table.column("id").to_pylist())


def keys_of(lake: KeyedLake, sts: Sts) -> set[str]:
    """Return the keys of the catalog that were used so far."""
    return sts.given.keys() & lake.keys_by_bucket["lake"]


# eight runs, each of which waits for a Python, and for Spark
@pytest.mark.timeout(900)
def test_whatever_happens_to_names_and_tasks_no_row_is_lost_or_doubled(
    unity: UnityServer,
    metastore: str,
    connect_server: RunningServer,
    name: str,
    tmp_path: Path,
    s3_lake: KeyedLake,
    sts: Sts,
):
    name = name.replace("main.", "cloud.")
    data = open_storage(str(tmp_path / "lake" / "managed"))
    managed = ManagedTable(unity, name, lambda uri: open_storage(uri, s3_lake.options()), data)
    managed.create_by_hand()
    sts.lifetime_seconds = LIFETIME_SECONDS
    writer = Writer(managed, {"hive": tmp_path / "lake" / "hive", "path": tmp_path / "lake" / "path"})
    of_connection = {**s3_lake.options(), "access_key_id": "of-connection", "secret_access_key": "none"}
    fleet = Fleet(tmp_path, connect_server.url, of_connection)
    with writer:
        register(metastore, "sales.orders", writer.folders["hive"].as_uri())
        fleet.streams = {
            "managed": (name, unity.url),
            "hive": ("sales.orders", metastore),
            "path": (str(writer.folders["path"]), None),
        }
        for fault in ("kill@driver.commit.after", "kill@entry.after.planned#2", "kill@entry.before.committed#2"):
            assert fleet.run(fault) == (-signal.SIGKILL, {})
        # a read lasts until its key has expired: the rest of the plan needs another one
        before, s3_lake.slow_reads = keys_of(s3_lake, sts), 1
        code, outcomes = fleet.run()
        assert (code, {one for one, _ in outcomes.values()}) == (0, {"loaded"}), outcomes
        assert s3_lake.slow_reads == 0
        assert len(keys_of(s3_lake, sts) - before) > 1

        # renamed: the other streams go on, and this one under its new name
        with writer.turn:
            unity.rename(name, f"{name.rpartition('.')[2]}_new")
            managed.name = f"{name}_new"
        _, outcomes = fleet.run()
        assert {stream: outcome for stream, (outcome, _) in outcomes.items()} == {
            "managed": "failed", "hive": "loaded", "path": "loaded",
        }  # fmt: skip
        assert f"has no table {name}" in outcomes["managed"][1]
        fleet.streams["managed"] = (managed.name, unity.url)

        # created anew under its name: nothing of the other table is loaded
        with writer.turn:
            writer.paused.add("hive")
        fleet.run()
        unregister(metastore, "sales.orders")
        other = tmp_path / "lake" / "other"
        deltalake.write_deltalake(other, pa.table({"id": pa.array([-1], pa.int64())}))
        register(metastore, "sales.orders", other.as_uri())
        assert fleet.run("kill@driver.commit.before")[0] == -signal.SIGKILL
    _, outcomes = fleet.run()
    assert outcomes["hive"][0] == "failed"
    assert "sales.orders is now another one, at" in outcomes["hive"][1]
    for stream in ("managed", "hive", "path"):
        assert fleet.ids(stream) == writer.ids[stream], stream
    assert "of-connection" not in s3_lake.keys_by_bucket["lake"]
