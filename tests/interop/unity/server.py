"""A real Unity Catalog server on loopback, and what its clients do to make, change and remove tables."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

SCRIPT = Path(__file__).parents[3] / "scripts" / "unity_server.sh"
API = "/api/2.1/unity-catalog"
_START_POLLS = 600

#: The server encrypts what it keeps of credentials, of which the tests have none.
_CONFIG = """
host: 127.0.0.1
port: {port}
backend: {{engine: sqlite, path: "{folder}/catalog.db"}}
encryption: {{active: {{id: tests, key: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}}}}
local_storage: {{allowed-roots: ["{lake}"]}}
ui: {{serve: false}}
"""


def server_binary() -> str:
    """Return the path of the server that `make catalog-test` has built."""
    found = subprocess.run([SCRIPT, "--only-print"], capture_output=True, text=True, check=True).stdout.strip()
    if not found and shutil.which("cargo") is None:
        pytest.skip("cargo, which builds the Unity Catalog server, is not installed")
    assert found, "the Unity Catalog server is not built on this machine: run make catalog-test once"
    return found


class UnityServer:
    """A server that runs.

    Args:
        folder: Where it keeps its database; its log is there too.
        lake: The folder of local tables.
        environment: Its way to STS.

    Attributes:
        url: Its address.
        lake: The folder of local tables.
    """

    def __init__(self, folder: Path, lake: Path, environment: Mapping[str, str]) -> None:
        binary = server_binary()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = folder / "config.yaml"
        config.write_text(_CONFIG.format(port=port, folder=folder, lake=lake))
        self.url = f"http://127.0.0.1:{port}"
        self.lake = lake
        self._log = folder / "log"
        with self._log.open("wb") as log:
            subprocess.run([binary, "migrate", "-c", str(config)], stdout=log, stderr=log, check=True)
            self._process = subprocess.Popen(
                [binary, "serve", "-c", str(config)],
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, "RUST_LOG": "warn"},
            )
        self._client = httpx.Client(base_url=f"{self.url}{API}", timeout=60)

    def __enter__(self) -> Self:
        pause = threading.Event()
        for _ in range(_START_POLLS):
            try:
                if httpx.get(f"{self.url}/health").is_success:
                    return self
            except httpx.TransportError:
                assert self._process.poll() is None, self._log.read_text(errors="replace")[-4000:]
            pause.wait(0.05)
        raise AssertionError(self._log.read_text(errors="replace")[-4000:])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait(30)

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200) -> dict[str, Any]:
        """Send a request that must be answered with ``status``; return the body."""
        answer = self._client.request(method, path, json=body)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else {}

    def make_catalog(self, name: str, root: str) -> None:
        """Make a catalog of tables below the URI ``root``, with the schema ``sales``."""
        role = {"role_arn": "arn:aws:iam::123456789012:role/fds", "access_key_id": "AKIA", "secret_access_key": "none"}
        self.call("POST", "/credentials", {"name": name, "purpose": "STORAGE", "aws_iam_role": role})
        self.call("POST", "/external-locations", {"name": name, "url": root, "credential_name": name})
        self.call("POST", "/catalogs", {"name": name, "storage_root": f"{root}/managed"})
        self.call("POST", "/schemas", {"name": "sales", "catalog_name": name})

    def make_external(self, name: str, location: str) -> str:
        """Register the Delta table at a URI; return its id."""
        body = {
            "name": name.rpartition(".")[2],
            "location": location,
            "table-type": "EXTERNAL",
            "columns": {"type": "struct", "fields": [_field("id", "long")]},
            "protocol": {"min-reader-version": 1, "min-writer-version": 2},
            "properties": {},
            "last-commit-timestamp-ms": 1_700_000_000_000,
        }
        answer = self.call("POST", table_path(name).rpartition("/")[0], body)
        return str(answer["metadata"]["table-uuid"])

    def make_other(self, name: str, table_type: str, **more: Any) -> None:
        """Register what is no Delta table."""
        catalog, schema, table = name.split(".")
        body = {"name": table, "catalog_name": catalog, "schema_name": schema, "table_type": table_type, "columns": []}
        self.call("POST", "/tables", {**body, **more})

    def load(self, name: str) -> dict[str, Any]:
        return self.call("GET", table_path(name))

    def rename(self, name: str, to: str) -> None:
        self.call("POST", f"{table_path(name)}/rename", {"new-name": to}, status=204)

    def drop(self, name: str) -> None:
        self.call("DELETE", table_path(name), status=204)


def table_path(name: str) -> str:
    """Return the path of a table in the API for Delta."""
    catalog, schema, table = name.split(".")
    return f"/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def columns_of(schema_string: str) -> dict[str, Any]:
    """Return the columns of a table's metadata as the API takes them."""
    found: dict[str, Any] = json.loads(schema_string)
    return found


__all__ = ["UnityServer", "columns_of", "server_binary", "table_path"]
