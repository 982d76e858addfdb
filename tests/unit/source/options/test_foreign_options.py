"""Options of other systems are refused with what FDS has instead."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options.foreign_options import FOREIGN, ForeignOption, foreign_option
from airflow_provider_fds.source.options.options import SourceOptions

ROOT = Path(__file__).parents[4]
FIELDS = {field.name for field in dataclasses.fields(SourceOptions)}
#: Arguments of the operator, read from its file: these tests do without Airflow.
ARGUMENTS = {
    argument.arg
    for node in ast.walk(ast.parse((ROOT / "airflow_provider_fds" / "operators" / "delta_ingest.py").read_text()))
    if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    for argument in node.args.kwonlyargs
}


def refusal(name: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse({name: "1"})
    assert caught.value.reason_code == "INVALID_OPTION"
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("given", "system", "ours"),
    [
        ("updateCheckIntervalMillis", "Flink's Delta connector", "poll_interval"),
        ("streaming-skip-delete-snapshots", "Iceberg's Spark source", "ignore_deletes=True"),
        ("hoodie.datasource.read.begin.instanttime", "Hudi", "starting_version"),
        ("availableNow", "Structured Streaming", "a run loads everything up to the version that was the newest"),
        ("cloudFiles.maxFilesPerTrigger", "Databricks Auto Loader", "max_files_per_batch"),
        ("cloudFiles.schemaLocation", "Databricks Auto Loader", "FDS reads Delta tables only"),
    ],
)
def test_an_option_of_another_system_is_refused_with_the_equivalent_option(given: str, system: str, ours: str) -> None:
    problem = refusal(given)
    assert problem.startswith(f"option {given!r} belongs to {system}. Here, ")
    assert ours in problem


@pytest.mark.parametrize("option", FOREIGN, ids=lambda option: option.name)
def test_every_suggested_option_exists(option: ForeignOption) -> None:
    assert option.answer in refusal(option.name)
    named = set(re.findall(r"[a-z]+(?:_[a-z]+)+", option.answer))
    assert named <= FIELDS | ARGUMENTS
    others = ("omit it", "wait=True", "the stream's name", "`fds admin import-checkpoint`")
    assert named or any(words in option.answer for words in others)


@pytest.mark.parametrize(
    "spelling", ["streaming_skip_delete_snapshots", "streamingSkipDeleteSnapshots", "STREAMING-SKIP-DELETE-SNAPSHOTS"]
)
def test_separators_and_case_do_not_matter(spelling: str) -> None:
    assert "ignore_deletes=True" in refusal(spelling)


def test_no_option_of_fds_is_refused_as_one_of_another_system() -> None:
    assert not any(foreign_option(name) for name in FIELDS)
    assert foreign_option("max_files") is None
