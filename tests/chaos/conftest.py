"""The warm Spark, and the count of all faults of the session with its table at the end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.actors import ROOT, wait_until
from tests.chaos.profile import PAGE, PROFILE, SEED
from tests.chaos.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent

_TALLY = pytest.StashKey[Tally]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    tally = config.stash[_TALLY]
    if not tally.total:
        return
    terminalreporter.section(f"chaos, profile {PROFILE}, seed {SEED}")
    terminalreporter.write_line(tally.table())
    terminalreporter.write_line(tally.summary())
    if PAGE and exitstatus == 0:
        page = ROOT / PAGE
        page.write_text(tally.written_into(page.read_text(encoding="utf-8"), seed=SEED), encoding="utf-8")


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Tally:
    return request.config.stash[_TALLY]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> random.Random:
    """Chance of one test, the same for the same seed whatever order the tests run in."""
    return random.Random(f"{SEED} {request.node.name}")


@dataclass(frozen=True)
class Bucket:
    """A bucket on an S3 server of this process."""

    uri: str
    endpoint: str

    def options(self) -> dict[str, str]:
        """What obstore needs to reach it."""
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
    """A session of Spark that serves jobs; its port."""
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
