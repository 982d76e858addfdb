"""``fds run`` of one stream, with a Spark that only leaves its reports; tests/interop/test_fds_run.py has another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.backends import registry
from airflow_provider_fds.backends.base import Outcome, SparkBackend
from airflow_provider_fds.errors import EXIT_CONFIGURATION
from tests.conftest import LogBuilder
from tests.fds_command import fds
from tests.unit.stream.conftest import SINK_ID, Bench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Spark(SparkBackend):
    """Reports every batch as done."""

    def __init__(self) -> None:
        self.started = 0

    def check(self) -> None:
        """Find nothing wrong."""

    def run(self, application: Any) -> Outcome:
        self.started += 1
        session = application.session
        bench = Bench(session.stream.table, session.context.staging_uri)
        bench.sink_version = self.started - 1
        bench.report(session, application.work, application.spec_uri)
        return Outcome(None)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    found = Spark()
    monkeypatch.setattr(registry, "command_line_backend", lambda *_: found)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        places = ("--stream", "orders", "--sink", tmp_path / "sink", "--staging", tmp_path / "staging")
        found = fds(*map(str, ("run", tmp_path / "table", *places)), "--option", "starting_version=0", *words)
        return found.returncode, found.stdout + found.stderr

    return run


def fields(builder: Any, *names: str) -> list[dict[str, Any]]:
    return [builder.field(name, **{"delta.columnMapping.physicalName": f"col-{name}"}) for name in names]


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("is_seen_without_data", [False, True])
def test_a_column_that_the_sink_lacks_stops_a_run_before_spark_starts(
    log_builder: Any, spark: Spark, run: Any, tmp_path: Path, is_seen_without_data: bool, mapping: str
) -> None:
    configuration, protocol = {"delta.columnMapping.mode": mapping}, {"minReaderVersion": 2, "minWriterVersion": 5}
    log_builder.create(fields(log_builder, "id", "country"), configuration=configuration, protocol=protocol)
    log_builder.append()
    sink = LogBuilder(tmp_path / "sink")
    sink.table_id = SINK_ID
    sink.create([sink.field("id"), sink.field("country")])
    assert run()[0] == 0
    assert spark.started == 1
    columns = fields(log_builder, "id", "country", "added")
    log_builder.commit(log_builder.metadata(columns, configuration=configuration), operation="ADD COLUMNS")
    if is_seen_without_data:
        run()
    log_builder.append()
    for _ in range(2):
        code, said = run()
        assert (code, spark.started) == (6, 1), said
        assert "columns added that the sink" in said
        assert "merge_schema=True" in said
        assert "leave them out" in said

    assert run("--sink-option", "columns=id,country")[0] == 0
    assert spark.started == 2


def test_a_version_that_stops_a_run_is_named_once(
    log_builder: Any, spark: Spark, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), operation="DELETE")
    code, said = run()
    assert (code, spark.started) == (3, 1), said
    assert "fds: stopped: " in said
    # the command prints its log to the same place
    assert f"{said}{caplog.text}".count("this commit only and records it") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--master", "local[1]"), "--deploy-mode cluster requires a master that runs drivers"),
        (
            ("--master", "spark://m:7077", "--conf", "spark.master.rest.port=rest"),
            "Spark --master spark://m:7077 has the rest-port 'rest', expected the port of the master's REST server",
        ),
        (("--remote", "sc://m:15002"), "deploy_mode"),
    ],
)
def test_a_master_that_runs_no_driver_is_refused_before_anything_is_written(run, tmp_path, words, said) -> None:
    code, text = run("--deploy-mode", "cluster", *words)
    assert code == EXIT_CONFIGURATION
    assert said in text
    assert not (tmp_path / "staging").exists()
