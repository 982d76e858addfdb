"""What Spark is told of S3: per bucket, what Airflow's side has, and nothing against the user's own settings."""

from __future__ import annotations

import pytest

from airflow_provider_fds.catalog.vended import VendedCredentials
from airflow_provider_fds.places import Place
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.submission.object_store import (
    VENDED_PROVIDER,
    JobStorage,
    job_storage,
    log_store_settings,
    s3a_settings,
)

LAKE = "spark.hadoop.fs.s3a.bucket.lake."
KEYS = {"access_key_id": "key", "secret_access_key": "word"}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def settings(options, own=None, uri="s3://lake/orders"):
    plain, secret = s3a_settings(JobStorage((Place(uri, options),)), own or {})
    assert not set(plain) & set(secret)
    return plain, secret


def test_keys_are_secret_settings_of_the_bucket_and_the_rest_may_be_seen():
    plain, secret = settings({**KEYS, "region": "eu-west-1", "storage_conn_id": "lake"})
    assert secret == {LAKE + "access.key": "key", LAKE + "secret.key": "word"}
    provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    assert plain == {LAKE + "endpoint.region": "eu-west-1", LAKE + "aws.credentials.provider": provider}


def test_a_session_token_makes_them_temporary():
    plain, secret = settings({**KEYS, "session_token": "t"})
    assert secret[LAKE + "session.token"] == "t"
    assert plain[LAKE + "aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")


def test_an_endpoint_is_addressed_by_path_and_has_a_region():
    plain, _ = settings({"endpoint": "http://minio:9000"})
    assert plain == {
        LAKE + "endpoint": "http://minio:9000",
        LAKE + "endpoint.region": "us-east-1",
        LAKE + "path.style.access": "true",
    }
    plain, _ = settings({"AWS_ENDPOINT_URL": "https://s3", "virtual_hosted_style_request": "true"})
    assert (plain[LAKE + "endpoint"], plain[LAKE + "path.style.access"]) == ("https://s3", "false")


def test_the_environment_of_this_process_counts_where_no_option_is_given(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    plain, secret = settings({})
    assert (plain[LAKE + "endpoint"], plain[LAKE + "endpoint.region"]) == ("http://minio:9000", "eu-west-1")
    assert settings({"endpoint": "http://other"})[0][LAKE + "endpoint"] == "http://other"
    # keys of the environment are found by S3A itself
    assert secret == {}


def test_credentials_that_need_a_clouds_own_library_stay_with_airflow():
    assert settings({"credential_provider": object()}) == ({}, {})
    plain, _ = settings({"skip_signature": True})
    assert plain[LAKE + "aws.credentials.provider"].endswith(".AnonymousAWSCredentialsProvider")


@pytest.mark.parametrize(
    "name", ["fs.s3a.access.key", "fs.s3a.aws.credentials.provider", "fs.s3a.bucket.lake.assumed.role.arn"]
)
def test_a_users_own_credentials_are_kept(name):
    plain, secret = settings({**KEYS, "endpoint": "http://minio"}, {f"spark.hadoop.{name}": "mine"})
    assert secret == {}
    assert set(plain) == {LAKE + "endpoint", LAKE + "endpoint.region", LAKE + "path.style.access"}


def test_a_users_own_endpoint_is_kept():
    plain, secret = settings({**KEYS, "endpoint": "http://minio"}, {"spark.hadoop.fs.s3a.endpoint": "http://mine"})
    assert not any("endpoint" in key for key in plain)
    assert set(secret) == {LAKE + "access.key", LAKE + "secret.key"}


def test_other_stores_have_no_settings():
    for uri in ("/orders", "file:///orders", "gs://lake/orders", "abfss://c@a.dfs.core.windows.net/t"):
        assert settings(KEYS, uri=uri) == ({}, {})


def test_each_bucket_has_its_own_credentials_and_one_bucket_cannot_have_two():
    other = {**KEYS, "secret_access_key": "HUSH", "storage_conn_id": "other"}
    two = JobStorage((Place("s3://lake/orders", KEYS), Place("s3a://gold/orders", other)))
    _, secret = s3a_settings(two, {})
    assert secret["spark.hadoop.fs.s3a.bucket.gold.secret.key"] == "HUSH"
    one = JobStorage((Place("s3://lake/orders", KEYS), Place("s3a://lake/gold", other)))
    with pytest.raises(SparkSetupError, match=r"bucket lake is reached in two ways .*by the environment.*'other'") as e:
        s3a_settings(one, {})
    assert "HUSH" not in str(e.value)
    assert "HUSH" not in repr(one)


def test_a_scheme_without_a_file_system_of_hadoop_is_refused_with_the_way_to_write_it():
    with pytest.raises(SparkSetupError, match=r"no file system for az://.*abfss://<container>@<account>"):
        settings({}, uri="az://container/orders")


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (DeltaAppendSink("s3://lake/bronze"), True),
        (DeltaAppendSink("S3A://lake/bronze"), True),
        (DeltaAppendSink("s3://lake/bronze", allow_single_driver_s3=True), False),
        (DeltaAppendSink("/bronze"), False),
        (None, False),
    ],
)
def test_the_log_store_is_for_sinks_on_s3(sink, expected):
    storage = job_storage([Place("s3://lake/orders")], sink)
    assert storage.needs_log_store is expected
    assert storage.is_on_s3
    assert set(log_store_settings(storage, {})) == (
        {f"spark.delta.logStore.{scheme}.impl" for scheme in ("s3", "s3a", "s3n")} if expected else set()
    )


def vended(table="orders", bucket="lake", **options):
    keys = VendedCredentials(lambda: None)
    keys.hadoop = {"fs.unitycatalog.delta.table.name": table, "fs.unitycatalog.auth.token": "hidden"}
    return Place(f"s3://{bucket}/{table}", {"credential_provider": keys, **options}, name=f"main.sales.{table}")


def test_a_table_whose_catalog_gives_keys_is_read_with_keys_that_spark_asks_for_itself():
    source, sink = vended(region="eu-west-1"), Place("s3://bronze/orders", KEYS)
    storage = JobStorage((source, Place("s3://staging/fds", KEYS), sink))
    assert storage.vended({}) is source
    plain, secret = s3a_settings(storage, {}, source)
    assert plain[LAKE + "aws.credentials.provider"] == VENDED_PROVIDER
    assert plain[LAKE + "endpoint.region"] == "eu-west-1"
    assert secret["spark.hadoop.fs.unitycatalog.auth.token"] == "hidden"
    assert secret["spark.hadoop.fs.unitycatalog.delta.table.name"] == "orders"
    assert secret["spark.hadoop.fs.s3a.bucket.bronze.access.key"] == "key"
    assert LAKE + "access.key" not in secret
    assert "hidden" not in repr(storage)


@pytest.mark.parametrize("name", ["fs.s3a.access.key", "fs.s3a.bucket.lake.aws.credentials.provider"])
def test_a_users_own_credentials_come_before_those_of_a_catalog(name):
    assert JobStorage((vended(),)).vended({f"spark.hadoop.{name}": "own"}) is None


@pytest.mark.parametrize("other", ["s3://lake/staging", "s3a://lake/bronze"])
def test_keys_for_one_table_are_not_used_for_anything_else_in_its_bucket(other, caplog):
    caplog.set_level("INFO")
    storage = JobStorage((vended(), Place(other, KEYS)))
    assert storage.vended({}) is None
    assert other in caplog.text
    plain, secret = s3a_settings(storage, {}, None)
    assert VENDED_PROVIDER not in plain.values()
    assert secret[LAKE + "access.key"] == "key"


def test_an_application_reads_one_table_with_keys_of_a_catalog():
    one = vended()
    assert JobStorage((one, one, Place("/sink"))).vended({}) is one
    with pytest.raises(SparkSetupError, match=r"not main.sales.orders, main.sales.returns"):
        JobStorage((one, vended("returns", "other"))).vended({})
    own = {"spark.hadoop.fs.s3a.bucket.other.aws.credentials.provider": "own"}
    assert JobStorage((one, vended("returns", "other"))).vended(own) is one


ORDERS = vended()
LOCAL, LAKE_ORDERS, STAGING = Place("/data/orders"), Place("s3://lake/orders", KEYS), Place("s3://staging/fds", KEYS)


@pytest.mark.parametrize(
    ("started", "wanted", "expected"),
    [
        ((LAKE_ORDERS, STAGING), (LAKE_ORDERS,), True),
        ((LAKE_ORDERS,), (Place("s3a://lake/returns", {**KEYS}), LOCAL), True),
        ((LAKE_ORDERS,), (LAKE_ORDERS, STAGING), False),
        ((LAKE_ORDERS,), (Place("s3://lake/orders", {**KEYS, "secret_access_key": "new"}),), False),
        ((LOCAL,), (LAKE_ORDERS,), False),
        ((ORDERS, STAGING), (STAGING, ORDERS), True),
        # keys of a catalog are for one table
        ((ORDERS,), (vended("returns"),), False),
        ((ORDERS,), (ORDERS, Place("s3://lake/bronze", KEYS)), False),
    ],
)
def test_spark_stays_for_a_job_whose_places_it_reaches_in_the_same_way(started, wanted, expected):
    assert JobStorage(started).covers(JobStorage(wanted)) is expected


@pytest.mark.parametrize(("started", "wanted", "expected"), [(True, False, True), (False, True, False)])
def test_spark_without_the_log_store_does_not_stay_for_a_job_that_commits_on_s3(started, wanted, expected):
    places = (LAKE_ORDERS,)
    assert JobStorage(places, needs_log_store=started).covers(JobStorage(places, needs_log_store=wanted)) is expected
