"""A checkpoint store is one class and one line of registration."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_provider_fds.checkpoint.asset import AssetCheckpointStore
from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.checkpoint.registry import STORES, checkpoint_problem, checkpoint_store
from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore
from airflow_provider_fds.checkpoint.xcom import XComCheckpointStore
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream import DeltaStream


class TableCheckpointStore:
    is_kept = True

    def __init__(self, stream, table):
        self.home = self.discard = f"row {stream} of {table}"

    @classmethod
    def for_stream(cls, stream, place):
        return cls(stream, place)


def test_a_new_store_is_one_class_and_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "team_checkpoints", sys.modules[__name__])
    monkeypatch.setitem(STORES, "table:<name>", "team_checkpoints:TableCheckpointStore")
    stream = DeltaStream("orders", "s3://lake/orders", checkpoint="table:ops:positions")
    assert checkpoint_store(stream.name, stream.checkpoint).home == "row orders of ops:positions"
    with pytest.raises(ConfigurationError, match=r"checkpoint must be .* or 'table:<name>', got 'table'\. Did you"):
        DeltaStream("orders", "s3://lake/orders", checkpoint="table")


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        ("variable", VariableCheckpointStore),
        ("xcom", XComCheckpointStore),
        ("asset", AssetCheckpointStore),
        ("file:/x:y/z", FileCheckpointStore),
    ],
)
def test_a_stream_has_the_store_that_it_names(checkpoint, expected):
    assert checkpoint_problem(checkpoint) is None
    store = checkpoint_store("orders", checkpoint, "s3a://lake/orders")
    assert type(store) is expected
    assert store.home.rpartition(" ")[2] in ("'fds.orders'", "'fds_checkpoint.orders'", "'s3://lake/orders'", "/x:y/z")


@pytest.mark.parametrize("checkpoint", ["", "file", "file:", "variable:", "xcom:x", "files:/x", "<path>", 3, None])
def test_a_store_that_does_not_exist_is_refused(checkpoint):
    problem = checkpoint_problem(checkpoint)
    assert problem.startswith("checkpoint must be 'variable', ")
    assert f"got {checkpoint!r}." in problem
    assert all(repr(store) in problem for store in STORES)


def test_a_stream_is_declared_without_loading_a_store():
    code = """
import sys
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
DeltaStream("orders", "s3://lake/orders", checkpoint="file:/x")
loaded = [name for name in sys.modules if name.startswith("airflow_provider_fds.checkpoint.")]
assert loaded == ["airflow_provider_fds.checkpoint.registry"], loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
