"""The warm Spark, and an S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.actors import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@dataclass(frozen=True)
class Bucket:
    """A bucket on an S3 server of this process."""

    uri: str
    endpoint: str

    def options(self) -> dict[str, str]:
        """What obstore needs to access it."""
        keys = {"access_key_id": "test", "secret_access_key": "test"}
        return {"endpoint": self.endpoint, "region": "us-east-1", **keys}


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/staging", method="PUT"), timeout=30).close()
    yield Bucket("s3://staging", endpoint)
    server.stop()


@pytest.fixture(scope="session")
def warm_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A Spark session that serves jobs; its port."""
    with _serving(tmp_path_factory.mktemp("warm")) as port:
        yield port


@pytest.fixture(scope="session")
def warm_spark_on_s3(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket) -> Iterator[int]:
    """The same, with an S3 file system that knows the bucket."""
    with _serving(tmp_path_factory.mktemp("warm-s3"), bucket.endpoint) as port:
        yield port


@contextmanager
def _serving(folder: Path, *arguments: str) -> Iterator[int]:
    said = folder / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.warm_spark", "serve", *arguments],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
    assert process.stdin is not None
    with process.stdin:

        def port() -> str | None:
            assert process.poll() is None, said.read_text(errors="replace")[-3000:]
            found = [line for line in said.read_text(errors="replace").splitlines() if line.startswith("port ")]
            return found[0] if found else None

        yield int(wait_until(port, "the port of the warm Spark").split()[1])
        process.stdin.close()
        process.wait(60)
