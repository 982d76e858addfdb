"""Source, staging and sink on S3, with real spark-submits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.s3_server import Server

FDS = [sys.executable, "-m", "airflow_provider_fds.cli.main"]
LONGEST_SECONDS = 600

pytestmark = pytest.mark.timeout(1500)


class S3Lake:
    """Tables in the bucket of the server, written and read by delta-rs, and `fds run` on them."""

    def __init__(self, server: Server, folder) -> None:
        self.server = server
        self.folder = folder
        self.sink = f"s3://{server.bucket}/bronze/orders é"
        self.options = {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test/secret+word",
        }

    def append(self, name: str, *ids: int) -> str:
        import deltalake
        import pyarrow as pa

        uri = f"s3://{self.server.bucket}/{name}"
        options = {**self.options, "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"}
        deltalake.write_deltalake(
            uri, pa.table({"id": pa.array(ids, pa.int64())}), mode="append", storage_options=options
        )
        return uri

    def sink_table(self):
        import deltalake

        return deltalake.DeltaTable(self.sink, storage_options={**self.options, "AWS_ALLOW_HTTP": "true"})

    def sink_ids(self) -> list[int]:
        return sorted(self.sink_table().to_pyarrow_table().column("id").to_pylist())

    def start(self, source: str, stream: str, faults: str = "") -> subprocess.Popen[str]:
        """Start `fds run` with the keys in the options, as a connection brings them."""
        options = {"endpoint": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}
        options |= {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
        pairs = [part for key, name in options.items() for part in ("--storage-option", f"{key}={self.options[name]}")]
        environ = {**os.environ}
        if faults:
            marks = self.folder / f"marks of {stream}"
            marks.mkdir(exist_ok=True)
            environ |= {"FDS_TEST_FAULTS": faults, "FDS_TEST_FAULT_MARKS": str(marks)}
        command = [*FDS, "run", source, "--stream", stream, "--staging", f"s3://{self.server.bucket}/staging"]
        command += [
            "--sink",
            self.sink,
            "--checkpoint",
            str(self.folder / f"{stream}.json"),
            *pairs,
            "--output",
            "json",
        ]
        return subprocess.Popen(
            [*command, "--option", "starting_version=0"],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stopped_driver(self, stream: str) -> int:
        """Wait until the driver of a stream stands still; return its process id."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            for mark in (self.folder / f"marks of {stream}").glob("stop@*"):
                if mark.read_text():
                    return int(mark.read_text())
            time.sleep(0.1)
        raise TimeoutError(stream)


@pytest.fixture
def lake(server, tmp_path):
    return S3Lake(server, tmp_path)


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict]]:
    out, _ = process.communicate(timeout=LONGEST_SECONDS)
    print(out)
    return process.returncode, [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_two_spark_submits_that_commit_to_one_sink_at_once_lose_nothing(lake, server):
    orders, returns = lake.append("orders", 1, 2), lake.append("returns", 3, 4)
    lake.append("bronze/orders é", 0)
    # both are let to the very commit of their batch, and there to the request that makes it
    both = [lake.start(uri, uri[-4:], "stop@driver.commit.before") for uri in (orders, returns)]
    stopped = [lake.stopped_driver(uri[-4:]) for uri in (orders, returns)]
    # the commits before are those of the registrations
    version = lake.sink_table().version() + 1
    assert version == 3
    server.let_meet(f"_delta_log/{version:020d}.json", 2)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    said = [ended(process) for process in both]

    assert [code for code, _ in said] == [0, 0]
    assert server.meetings == 1
    assert sorted(lines[0]["sink_version"] for _, lines in said) == [version, version + 1]
    assert lake.sink_ids() == [0, 1, 2, 3, 4]


def test_a_driver_that_is_killed_after_its_commit_has_committed_once(lake):
    orders = lake.append("orders", 1, 2)
    code, _ = ended(lake.start(orders, "orders", "kill-group@driver.commit.after"))
    assert code not in (0, None)
    assert lake.sink_ids() == [1, 2]
    code, (batch, end) = ended(lake.start(orders, "orders"))
    assert (code, [batch[key] for key in ("batch_id", "rows", "sink_version")]) == (0, [0, 2, 0])
    assert end["status"] == "up_to_date"
    assert lake.sink_table().version() == 0
    assert lake.sink_ids() == [1, 2]


def test_an_imitation_of_s3_that_ignores_conditions_is_refused_before_any_row_is_written(lake, server):
    orders = lake.append("orders", 1, 2)
    process = lake.start(orders, "orders", "stop@driver.started")
    pid = lake.stopped_driver("orders")
    server.forget_conditions()
    os.kill(pid, signal.SIGCONT)
    code, (end,) = ended(process)
    assert code != 0
    assert "SINK_LOG_STORE_UNSAFE" in end["error"]["message"]
    assert "If-None-Match" in end["error"]["message"]
    assert "allow_single_driver_s3=True" in end["error"]["message"]
    assert not [key for key in server.keys(server.bucket) if key.startswith("bronze/") and key.endswith(".parquet")]
