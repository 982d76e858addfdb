"""The page on object storage has the table of schemes that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_fds.schemes import SCHEMES

PAGE = Path(__file__).parents[3] / "docs" / "object_storage.md"
STORES = {
    "local": "local disk",
    "s3": "S3",
    "gcs": "Google Cloud Storage",
    "azure": "Azure",
    "hdfs": "HDFS",
    "hadoop": "other Hadoop file systems",
}


def test_the_table_of_schemes_is_that_of_the_code():
    rows = re.findall(r"^\| `(\w+)`[^|]*\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert [scheme for scheme, *_ in rows] == list(SCHEMES)
    for scheme, store, spark, connection in rows:
        known = SCHEMES[scheme]
        assert store == STORES[known.kind]
        assert spark == f"`{known.hadoop}`" if known.hadoop else spark.startswith("not at all")
        assert known.is_planned_from is ("not supported" not in connection)
