"""The name of a table in OpenLineage, and the page about lineage."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_fds.get_provider_info import get_provider_info
from airflow_provider_fds.hooks.lineage import dataset_name
from airflow_provider_fds.operators.lineage.asset_event import asset_uri
from airflow_provider_fds.operators.lineage.lineage_facets import BATCHES_FIELDS, STREAM_FIELDS, VERSIONS_FIELDS
from airflow_provider_fds.schemes import SCHEMES

PAGE = (Path(__file__).parents[2] / "docs" / "lineage.md").read_text()


# what FilesystemDatasetUtils of openlineage-java 1.53.0 returned for each URI
@pytest.mark.parametrize(
    ("uri", "namespace", "name"),
    [
        ("s3://lake/a/orders", "s3://lake", "a/orders"),
        ("s3a://lake/orders", "s3://lake", "orders"),
        ("gs://b/x/y", "gs://b", "x/y"),
        ("abfss://c@acc.dfs.core.windows.net/x/y", "abfss://c@acc.dfs.core.windows.net", "x/y"),
        ("abfs://c@acc.dfs.core.windows.net/x", "abfss://c@acc.dfs.core.windows.net", "x"),
        ("wasbs://c@acc.blob.core.windows.net/x", "wasbs://c@acc.blob.core.windows.net", "x"),
        ("hdfs://nn:8020/x/y", "hdfs://nn:8020", "/x/y"),
        ("file:///a/b", "file", "/a/b"),
        ("file:///a%20b", "file", "/a b"),
        ("s3://lake/a%20b", "s3://lake", "a b"),
        ("s3://lake", "s3://lake", "/"),
    ],
)
def test_a_table_has_the_name_that_the_spark_agent_gives_it(uri, namespace, name):
    assert dataset_name(uri) == (namespace, name)


def test_every_scheme_of_an_asset_uri_has_a_converter_except_file():
    (entry,) = get_provider_info()["asset-uris"]
    written = {
        asset_uri(f"{name}:///lake" if name == "file" else f"{name}://lake/orders").partition(":")[0]
        for name in SCHEMES
        if SCHEMES[name].is_planned_from
    }
    assert set(entry["schemes"]) == written - {"file"}
    # Airflow ignores an entry without this key
    assert "handler" in entry


def test_the_page_names_the_fields_of_each_facet_of_fds():
    for facet, fields in (("stream", STREAM_FIELDS), ("batches", BATCHES_FIELDS), ("versions", VERSIONS_FIELDS)):
        row = re.search(rf"^\| `fds_{facet}` \| \w+ \| (.*) \|$", PAGE, re.MULTILINE)
        assert row is not None
        assert re.findall(r"`(\w+)`", row[1]) == list(fields)


def test_the_page_shows_how_tables_are_named():
    rows = re.findall(r"^\| `([^`]+)`[^|]* \| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) > 3
    for uri, *name in rows:
        assert list(dataset_name(uri if "://" in uri else f"file://{uri}")) == name
