"""One image and one composition for all tests of this folder."""

from __future__ import annotations

import os
import secrets
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.docker.services import Composition

# the demo has the client
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "FDS_DOCKER_IMAGE" in os.environ:
        return
    skipped = pytest.mark.skip(reason="an image is built and run as root, so only `make docker-test` does it")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def image() -> str:
    """The image's name."""
    return os.environ["FDS_DOCKER_IMAGE"]


@pytest.fixture(scope="session")
def composition(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    """Containers of all services; none runs yet."""
    composed = Composition(image, tmp_path_factory.mktemp("composed"), secrets.token_hex(32))
    try:
        composed.create()
        yield composed
    finally:
        composed.remove()


def wait_for(is_reached: Callable[[], Any], seconds: float, composition: Composition) -> Any:
    """Ask again and again until something true comes back, and return it; fail with the logs."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = is_reached()
        except OSError:
            found = None
        if found:
            return found
        for service in composition.services.values():
            if service.process is not None and service.process.poll():
                pytest.fail(
                    f"{service.name} ended with {service.process.returncode}:\n{composition.said(service.name)[-4000:]}"
                )
        if time.monotonic() > deadline:
            pytest.fail(f"not reached within {seconds:.0f} s\n{composition.tails()}")
        time.sleep(1)


def read(url: str) -> bytes:
    """Return what a server of this network answers, whatever proxy the environment names."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        return bytes(answer.read())
