"""A sink and its writer bear one name, and a new pair of them is in no list."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import airflow_provider_fds
from airflow_provider_fds import sinks
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink, sink_class, sink_from_dict
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.writer import Writer, writer_class

PACKAGE = Path(airflow_provider_fds.__file__).parent

ICEBERG_SINK = """
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_provider_fds.sinks.base import Delivery, Sink, Target


@dataclass(frozen=True)
class IcebergTableSink(Sink):
    kind: ClassVar[str] = "iceberg_table"
    target: ClassVar[Target] = "other_table"
    delivery: ClassVar[Delivery] = "token"

    table: str

    def identity(self) -> dict[str, str]:
        return {"kind": self.kind, "target": self.table}

    def rendered(self, render: Any) -> IcebergTableSink:
        return IcebergTableSink(render(self.table))
"""

ICEBERG_WRITER = """
from airflow_provider_fds.spark.writers.writer import Landed, Writer


class IcebergTableWriter(Writer):
    def find(self, batch):
        return None

    def append(self, frame, batch):
        frame.writeTo(self._sink.table).append()
        return Landed(None, by_this_attempt=True)
"""

ON_THE_DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.spark.writers.writer import writer_class
from airflow_provider_fds.spark.application.batch_attempt import describe_sink
sink = sink_from_dict({"kind": "iceberg_table", "table": "lake.orders"})
print(sink, writer_class(sink).__name__, writer_class(sink).__module__)
print(describe_sink(sink.to_dict()))
"""

ON_AIRFLOWS_SIDE = """
from airflow_provider_fds.ledger.values import SinkBinding
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink
from airflow_provider_fds.spark.submission.driver_zip import driver_zip
sink = coerce_sink({"kind": "iceberg_table", "table": "lake.orders"})
bound = SinkBinding(**sink.identity())
assert bound.is_user_defined
assert not (bound.is_function or bound.is_fenced or bound.replaces or bound.merges)
assert (sink.known_tables, sink.needs_log_store, sink.needs_whole_commits) == ((), False, False)
assert (bound.delivery, bound.describe(), sink.describe()) == ("token", "iceberg_table lake.orders", "lake.orders")
assert sink.needs_order  # offsets only, unless it says otherwise
print(driver_zip())
"""


@pytest.mark.parametrize(
    ("sink", "writer"),
    [
        ({"kind": "delta_append", "uri": "/t"}, "DeltaAppendWriter"),
        ({"kind": "delta_replace", "uri": "/t", "provenance": True}, "DeltaReplaceWriter"),
        ({"kind": "delta_merge", "uri": "/t", "keys": ["id"]}, "DeltaMergeWriter"),
        ({"kind": "foreach_batch", "function": "job:load"}, "ForeachBatchWriter"),
    ],
)
def test_a_sink_is_written_by_the_writer_of_its_name(sink, writer):
    found = writer_class(sink_from_dict(sink))
    assert found.__name__ == writer
    assert issubclass(found, Writer)


def test_every_sink_says_what_it_writes_to_and_how_a_repeated_batch_lands_once():
    found = [sink_class(kind) for kind in ("delta_append", "delta_replace", "delta_merge", "foreach_batch")]
    assert [(sink.target, sink.delivery, sink.replaces, sink.needs_keys) for sink in found] == [
        ("delta_table", "transaction", False, False),
        ("delta_table", "transaction", True, False),
        ("delta_table", "transaction", False, True),
        ("function", "at_least_once", False, False),
    ]


def test_a_sink_of_two_files_is_shipped_bound_and_written_without_a_third(tmp_path):
    copy = tmp_path / "airflow_provider_fds"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "sinks" / "iceberg.py").write_text(ICEBERG_SINK)
    (copy / "spark" / "writers" / "iceberg_table_writer.py").write_text(ICEBERG_WRITER)
    env = {"PYTHONPATH": str(tmp_path), "FDS_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    made = subprocess.run(
        [sys.executable, "-c", ON_AIRFLOWS_SIDE], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    # without site-packages, as on a driver that has nothing but its Python
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ON_THE_DRIVER, made.stdout.splitlines()[-1]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    module = "airflow_provider_fds.spark.writers.iceberg_table_writer"
    said = f"IcebergTableSink(table='lake.orders') IcebergTableWriter {module}"
    assert ran.stdout.splitlines() == [said, "lake.orders"]


@pytest.mark.parametrize("kind", ["os", "os:system", "iceberg_table_writer", "../job", "DeltaAppendSink", "", None, 7])
def test_a_job_spec_names_a_kind_of_sink_and_no_code(kind):
    # the sinks of the package, of which some are imported when a kind is looked up for the first time
    assert all(getattr(sinks, name) for name in sinks.__all__)
    before = set(sys.modules)
    with pytest.raises(ValueError, match="this version of FDS knows"):
        sink_from_dict({"kind": kind, "uri": "/t"})
    assert set(sys.modules) == before


def test_a_class_from_elsewhere_has_no_writer_whatever_its_kind_and_name():
    @dataclass(frozen=True)
    class Job(DeltaAppendSink):
        kind: ClassVar[str] = "delta_append"

    with pytest.raises(RefusalError, match="Job is not a sink of FDS"):
        writer_class(Job("/t"))


def test_a_sink_without_a_writer_says_which_one_is_missing(monkeypatch):
    @dataclass(frozen=True)
    class LonelySink(ForeachBatchSink):
        kind: ClassVar[str] = "lonely"

    monkeypatch.setitem(sinks._kinds(), "lonely", LonelySink)
    with pytest.raises(RefusalError, match=r"LonelySink has no writer LonelyWriter in lonely_writer\.py"):
        writer_class(LonelySink("job:load"))


def test_two_sinks_of_one_kind_are_refused(monkeypatch, tmp_path):
    copy = tmp_path / "airflow_provider_fds"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "sinks" / "twin.py").write_text(ICEBERG_SINK.replace("iceberg_table", "delta_append"))
    env = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [sys.executable, "-c", "from airflow_provider_fds.sinks import sink_class; sink_class('foreach_batch')"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert "have the same kind 'delta_append'" in ran.stderr
