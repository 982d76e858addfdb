"""From where a table may have files read."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.manifest.file_roots import FileRoots
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options.options import SourceOptions

S3, LOCAL, AZURE = "s3a://lake/orders", "file:///lake/orders", "abfss://box@acc.dfs.core.windows.net/orders"


@pytest.mark.parametrize(
    ("base", "uri"),
    [
        (S3, "s3a://lake/orders/p=a%2520b/part-0.parquet"),
        (S3, "s3a://lake/orders/_change_data/cdc-0.parquet"),
        (S3, "s3a://lake/orders/x/../part-0.parquet"),
        (S3, "s3a://lake/orders/a..b.parquet"),
        (S3, "s3://lake/origin/part-0.parquet"),
        (LOCAL, "file:/lake/origin/part-0.parquet"),
        (LOCAL, "/lake/origin/part-0.parquet"),
        (AZURE, "abfss://box@acc.dfs.core.windows.net/origin/part-0.parquet"),
    ],
)
def test_files_of_the_table_and_of_a_clones_origin_in_the_same_store_are_read(base, uri):
    assert FileRoots(base).check(uri, 3) == uri


STRANGERS = [
    (S3, "s3a://stranger/x.parquet"),
    (S3, "s3://lake2/x.parquet"),
    (S3, "s3a://lake/orders/../../stranger/x.parquet"),
    (S3, "s3a://lake/orders/../payroll/x.parquet"),
    (S3, "s3a://lake/orders/%2e%2e/payroll/x.parquet"),
    (S3, "s3a://lake/orders/%2E./payroll/x.parquet"),
    (S3, "s3a://lake/origin/../../stranger/x.parquet"),
    (S3, "gs://lake/orders/x.parquet"),
    (S3, "file:///etc/x.parquet"),
    (S3, "/etc/x.parquet"),
    (S3, "hdfs://namenode/x.parquet"),
    (S3, "http://169.254.169.254/x.parquet"),
    (LOCAL, "file:///lake/orders/../payroll/x.parquet"),
    (LOCAL, "s3://stranger/x.parquet"),
    (AZURE, "abfss://other@acc.dfs.core.windows.net/x.parquet"),
    (AZURE, "abfss://box@stranger.dfs.core.windows.net/x.parquet"),
]


@pytest.mark.parametrize(("base", "uri"), STRANGERS)
def test_files_outside_the_table_are_not_read_unless_their_place_is_named(base, uri):
    with pytest.raises(ConfigurationError, match="is outside the table") as caught:
        FileRoots(base).check(uri, 3)
    assert (caught.value.version, caught.value.table) == (3, base)
    assert FileRoots(base, ("*",)).check(uri, 3) == uri


def test_an_allowed_root_covers_everything_below_it_and_nothing_beside_it():
    roots = FileRoots(S3, ("s3://prod/orders", "gs://archive"))
    for uri in ("s3a://prod/orders/x.parquet", "gs://archive/a/b.parquet"):
        assert roots.check(uri, 3) == uri
    assert roots.check(f"{S3}/x.parquet", 3) == f"{S3}/x.parquet"
    beside = ("s3a://prod/orders2/x.parquet", "s3a://prod/orders/../x.parquet", "gs://archive2/x.parquet")
    for uri in (*beside, "s3a://lake/payroll/x.parquet"):
        with pytest.raises(ConfigurationError):
            roots.check(uri, 3)


def test_the_option_is_a_list_of_uris():
    assert SourceOptions.parse({"allowed_roots": "s3://b/x/, gs://a"}).allowed_roots == ("gs://a", "s3://b/x")
    assert SourceOptions.parse({"allowedRoots": ["*"]}).to_dict() == {"allowed_roots": ["*"]}
    assert SourceOptions.parse({}).to_dict() == {}
    for wrong in ("bucket", "s3://me:HUSH@b", 3, "s3://b/x y"):
        with pytest.raises(ConfigurationError, match="must be URIs of folders") as caught:
            SourceOptions.parse({"allowed_roots": wrong})
        assert "HUSH" not in str(caught.value)
