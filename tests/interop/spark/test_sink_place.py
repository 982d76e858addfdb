"""Where a sink on S3 may be committed to, as far as no S3 is needed to tell."""

from __future__ import annotations

import pytest

from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.sink_log.sink_place import check_log_store

STORE = "spark.delta.logStore.s3a.impl"
SINK = DeltaAppendSink("s3://lake/bronze")


@pytest.fixture
def check(spark):
    def with_store(name, sink=SINK):
        if name is not None:
            spark.conf.set(STORE, name)
        check_log_store(spark, sink, "s3a://lake/bronze")

    yield with_store
    spark.conf.unset(STORE)


def test_deltas_own_log_store_is_refused_whether_it_is_named_or_not(check):
    for name in (None, "io.delta.storage.S3SingleDriverLogStore"):
        with pytest.raises(RefusalError) as caught:
            check(name)
        assert caught.value.reason == "SINK_LOG_STORE_UNSAFE"
        for part in ("fds.storage.S3ConditionalLogStore", "fds-s3-log-store.jar", "allow_single_driver_s3=True"):
            assert part in str(caught.value)


def test_a_users_log_store_and_explicit_permission_are_accepted(check):
    check("io.delta.storage.S3DynamoDBLogStore")
    check(None, DeltaAppendSink("s3://lake/bronze", allow_single_driver_s3=True))


def test_fdss_own_log_store_without_its_jar_is_refused_by_name(check):
    with pytest.raises(RefusalError, match="not on the class path; put fds-s3-log-store") as caught:
        check("fds.storage.S3ConditionalLogStore")
    assert caught.value.reason == "SINK_LOG_STORE_UNSAFE"
