"""A table that a real metastore renames or moves: the stream stops, and goes on once the new folder is accepted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.catalog.conftest import HiveSpark


class Stream:
    """A stream that ``fds plan`` plans by a name in the metastore; each command is a process of its own."""

    def __init__(self, staging: Path, catalog: str) -> None:
        self.staging = staging
        self.catalog = catalog

    def fds(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow_provider_fds.cli.main", *words, "--staging", str(self.staging)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def plan(self, name: str, stream: str = "orders") -> subprocess.CompletedProcess[str]:
        source = ("--catalog", self.catalog, "--option", "starting_version=latest")
        return self.fds("plan", name, "--stream", stream, *source)


@pytest.fixture
def stream(metastore_uri: str, tmp_path: Path) -> Stream:
    return Stream(tmp_path / "staging", metastore_uri)


def command(message: str) -> list[str]:
    """Return the words of the command that a message has, with the reason that a person gives."""
    found = re.search(r"`fds (accept .*?) --why …`", message)
    assert found is not None, message
    return [*found[1].split(), "--why", "renamed by a person"]


def test_a_managed_table_that_is_renamed_is_followed_by_its_new_name_and_its_new_folder(
    hive_spark: HiveSpark, stream: Stream
):
    # Hive tells a table by the second in which it was created: no other test's table is in this database
    hive_spark.sql("CREATE DATABASE renames")
    hive_spark.sql("CREATE TABLE renames.sold (id BIGINT) USING delta")
    hive_spark.sql("CREATE VIEW renames.seen_sold AS SELECT 1 one")
    # nothing to load yet: the position is after version 0, whose commit is known
    planned = stream.plan("renames.sold")
    assert planned.returncode == 0, planned.stderr
    hive_spark.sql("ALTER TABLE renames.sold RENAME TO renames.sold_items")
    hive_spark.sql("INSERT INTO renames.sold_items VALUES (1)")

    gone = stream.plan("renames.sold")
    assert gone.returncode == 2
    assert "has no table renames.sold." in gone.stderr
    assert "The table that stream 'orders' has read is now renames.sold_items" in gone.stderr
    stopped = stream.plan("renames.sold_items")
    assert "its catalog has moved that table to" in stopped.stderr

    words = command(stopped.stderr)
    asked = stream.fds(*words)
    assert (asked.returncode, "Add --yes" in asked.stderr) == (2, True)
    assert "goes on with the table in" in asked.stdout
    assert stream.fds(*words, "--yes").returncode == 0
    going = stream.plan("renames.sold_items")
    assert going.returncode == 0, going.stderr
    history = stream.fds("history", "orders", "--output", "json").stdout
    named = [entry for entry in map(json.loads, history.splitlines()) if "named" in json.dumps(entry)]
    assert "renamed by a person" in json.dumps(named[-2:])


def test_a_table_that_points_to_a_copy_with_another_history_is_refused(hive_spark: HiveSpark, stream: Stream):
    here, there = hive_spark.folder / "kept", hive_spark.folder / "changed"
    hive_spark.sql(f"CREATE TABLE lab.copied (id BIGINT) USING delta LOCATION '{here}'")
    assert stream.plan("lab.copied", "copied").returncode == 0
    shutil.copytree(here, there)
    (commit,) = there.glob("_delta_log/*0.json")
    commit.write_text(commit.read_text() + "\n")
    hive_spark.sql(f"ALTER TABLE lab.copied SET LOCATION '{there}'")
    words = command(stream.plan("lab.copied", "copied").stderr)
    refused = stream.fds(*words, "--yes")
    assert refused.returncode == 2
    assert "version 0 in" in refused.stderr
    assert "is not the commit that the stream has read" in refused.stderr
