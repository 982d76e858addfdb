"""A session in which thousands of tiny queries are fast."""

from __future__ import annotations

from typing import Final

import pytest

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
