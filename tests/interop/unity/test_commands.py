"""The ``fds`` command against a real Unity Catalog, as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import EXIT_CONFIGURATION

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.unity.managed import ManagedTable
    from tests.interop.unity.server import UnityServer


def fds(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_what_a_name_stands_for_is_shown(table: ManagedTable, unity: UnityServer):
    shown = fds("catalog", table.name, "--catalog", unity.url, "--output", "json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert "its commits go through the catalog" in found.pop("as a sink")
    assert found == {
        "name": table.name,
        "location": table.location,
        "id": table.table_id,
        "newest commits": "in the catalog",
        "credentials": "of the storage options",
        "id in the log": table.log_id,
        "newest version": 3,
    }
    listed = fds("catalog", "main.sales.*", "--catalog", unity.url)
    assert table.name in listed.stdout.splitlines()


def test_its_newest_version_and_a_plan_are_shown(table: ManagedTable, unity: UnityServer, tmp_path: Path):
    latest = fds("latest", table.name, "--catalog", unity.url)
    assert (latest.returncode, latest.stdout.split()[:1]) == (0, ["3"]), latest
    words = ["plan", table.name, "--catalog", unity.url, "--staging", str(tmp_path), "--stream", "orders"]
    planned = fds(*words, "--option", "starting_version=0", "--output", "json")
    assert planned.returncode == 0, planned.stderr
    assert '"num_rows": 30' in planned.stdout or '"rows": 30' in planned.stdout, planned.stdout


def test_a_missing_table_is_an_error_in_words(unity: UnityServer):
    missing = fds("catalog", "main.sales.nope", "--catalog", unity.url)
    assert missing.returncode == EXIT_CONFIGURATION
    assert f"Unity Catalog {unity.url} has no table main.sales.nope" in missing.stderr
