"""A session in which thousands of tiny queries are fast, and a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.differential.by_name import NamedTables

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Makes thousands of tiny queries fast: nothing is compiled, nothing is planned again.
QUICK: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
}


@pytest.fixture(scope="module")
def quick_spark(spark):
    before = {key: spark.conf.get(key) for key in QUICK}
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    # queries that fail on purpose would print their stack traces
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)
    spark.sparkContext.setLogLevel("ERROR")


@pytest.fixture(scope="module")
def catalog() -> Iterator[NamedTables]:
    tables = NamedTables()
    yield tables
    tables.close()
