"""What is known of a Spark Connect server without asking it."""

from __future__ import annotations

from importlib import metadata

import pytest

from airflow_provider_fds.spark.connect import ConnectServer, tag_of, version_difference


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("sc://host", "host:15002"),
        ("sc://host:15099/;user_id=me;token=s3cr3t;use_ssl=true", "host:15099"),
        ("sc://host/;token=s3cr3t", "host:15002"),
    ],
)
def test_a_server_is_named_by_host_and_port_and_never_by_its_token(url, endpoint):
    server = ConnectServer(url, "connection 'warm'")
    assert server.endpoint == endpoint
    assert "s3cr3t" not in repr(server)


def test_a_server_of_another_version_than_the_client_is_named_with_both():
    mine = metadata.version("pyspark")
    assert version_difference(mine) is None
    assert version_difference(f"{mine.rsplit('.', 1)[0]}.99-SNAPSHOT") is None
    said = version_difference("3.5.7")
    assert said is not None
    assert "the server is Spark 3.5.7" in said
    assert f"the installed pyspark is {mine}" in said


def test_a_tag_has_no_comma_and_names_the_try():
    assert tag_of("20261121T101500-abc,def") == "fds-20261121T101500-abc-def"
