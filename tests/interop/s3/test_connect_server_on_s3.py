"""``fds connect-server --s3``: source, staging and sink on S3, with commits through FDS's log store."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.fds_command import fds
from tests.interop import quick_spark
from tests.interop.s3.test_sink_on_s3 import FDS, S3Lake

pytestmark = pytest.mark.timeout(600)


def test_a_server_for_s3_loads_into_a_sink_there_with_the_keys_of_its_environment(server, tmp_path):
    lake = S3Lake(server, tmp_path)
    source = lake.append("orders", 1, 2, 3)
    s3a = {"endpoint": server.endpoint, "path.style.access": "true", "endpoint.region": "us-east-1"}
    conf = {
        **{f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()},
        "spark.driver.extraJavaOptions": quick_spark.JVM,
    }
    words = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
    with subprocess.Popen(
        [*FDS, "connect-server", "--port", "0", "--s3", *words],
        env={**os.environ, **lake.options},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            url = process.stdout.readline().strip()
            names = {"AWS_ENDPOINT_URL": "endpoint", **{key: key for key in lake.options if "ENDPOINT" not in key}}
            pairs = (f"{names[key].lower()}={value}" for key, value in lake.options.items())
            options = [word for pair in pairs for word in ("--storage-option", pair)]
            places = ["--staging", f"s3://{server.bucket}/staging", "--sink", lake.sink, "--remote", url]
            done = fds("run", source, "--stream", "orders", *places, *options)
        finally:
            process.terminate()
    # without a log store that is atomic there, the sink would be refused
    assert done.returncode == 0, done.stderr
    assert lake.sink_ids() == [1, 2, 3]
    assert process.returncode == 0
