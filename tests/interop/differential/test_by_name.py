"""The comparison of plans by path and by name, without Spark: it notices each way to read such a log wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.catalog.log_view import CatalogLogView, LogTip
from airflow_provider_fds.errors import FdsError
from tests.interop.differential.by_name import plans_differ, readings
from tests.interop.differential.reading import TwoReaders
from tests.interop.differential.tables import RandomTable

if TYPE_CHECKING:
    from pathlib import Path

#: Of each, other commits are staged, and have a false published file.
SEEDS = range(1, 6)


@pytest.fixture
def tables(tmp_path: Path) -> list[RandomTable]:
    path = tmp_path / "table"
    for version in range(6):
        rows = pa.table({"id": [version], "v": [f"v{version}"]})
        deltalake.write_deltalake(path, rows, mode="append")
    return [RandomTable(seed, str(path)) for seed in SEEDS]


def differences(tables: list[RandomTable], catalog, folder: Path) -> list[str | None]:
    """Return how the plans of each table differ."""
    readers = TwoReaders(None, folder)
    found = []
    for table in tables:
        try:
            plans = readings(readers, catalog, table, {"starting_version": 1}, [{"max_files_per_batch": 2}], read="")
            found.append(plans_differ(plans))
        except FdsError as error:
            found.append(str(error))
    return found


def test_a_log_is_planned_alike_by_path_and_by_name(tables, catalog, tmp_path):
    assert differences(tables, catalog, tmp_path) == [None] * len(SEEDS)


def a_version_after_the_latest_counts(view: CatalogLogView, tip, after):
    yield from _LISTED(view, LogTip(tip.latest + 1, tip.staged), after)


def published_files_of_staged_commits_count(view: CatalogLogView, key):
    yield key
    yield from _KEYS(view, key)


def any_staged_file_counts(view: CatalogLogView, key):
    for real in _KEYS(view, key):
        folder, _, name = real.rpartition("/")
        if folder.endswith("/_staged_commits"):
            beside = view._folder.list_after(folder)
            yield from (
                item.key for item in beside if item.key.startswith(f"{folder}/{name[:20]}") and item.key != real
            )
        yield real


_LISTED, _KEYS = CatalogLogView._listed, CatalogLogView._keys


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_listed", a_version_after_the_latest_counts),
        ("_keys", published_files_of_staged_commits_count),
        ("_keys", any_staged_file_counts),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_view_in_which_something_else_counts_is_noticed(tables, catalog, tmp_path, monkeypatch, name, broken):
    monkeypatch.setattr(CatalogLogView, name, broken)
    found = differences(tables, catalog, tmp_path)
    assert [difference for difference in found if difference], found
