"""A catalog that gives keys for some seconds, and an S3 server where only these open its tables."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter

from tests.unit.catalog.unity_server import Reply, UnityServer, recorded

#: Shorter than a run that loads one batch after the other.
LIFETIME_SECONDS = 6.0

TABLES = "/delta/v1/catalogs/main/schemas/sales/tables"


class Vending:
    """A catalog whose tables are in a bucket where only the keys that it gave for them work, for a while."""

    def __init__(self, catalog: UnityServer, s3) -> None:
        self.catalog = catalog
        self.s3 = s3
        self.bucket = f"{s3.bucket}-vended"
        with urllib.request.urlopen(urllib.request.Request(f"{s3.endpoint}/{self.bucket}", method="PUT"), timeout=30):
            pass
        self.given: dict[str, float] = {}
        self.refused = Counter()
        #: Keys that were used for another table than theirs.
        self.mixed: set[str] = set()
        #: Keys of requests by whether they were for data, which only Spark reads.
        self.used: dict[bool, set[str]] = {False: set(), True: set()}
        config = recorded("07_config")
        catalog.replies["GET /delta/v1/config"] = Reply(200, config)

    def add(self, name: str) -> str:
        """Register a table; return its location."""
        location = f"s3://{self.bucket}/{name}"
        body = recorded("15_external_load")
        body["metadata"] |= {"location": location, "table-uuid": f"id-of-{name}"}
        self.catalog.replies[f"GET {TABLES}/{name}"] = Reply(200, body)
        self.catalog.replies[f"GET {TABLES}/{name}/credentials"] = lambda: self._keys(name, location)
        return location

    def _keys(self, name: str, location: str) -> Reply:
        key = f"AK-{name}-{len(self.given)}"
        self.given[key] = expires = time.time() + LIFETIME_SECONDS
        config = {"s3.access-key-id": key, "s3.secret-access-key": "SK-hidden", "s3.session-token": "ST-hidden"}
        one = {"prefix": location, "operation": "READ", "config": config, "expiration-time-ms": int(expires * 1000)}
        return Reply(200, {"storage-credentials": [one]})

    def is_valid(self, path: str, key: str) -> bool:
        if not path.startswith(f"/{self.bucket}/"):
            return True
        is_valid = time.time() < self.given.get(key, 0)
        if not is_valid:
            self.refused[key] += 1
        if f"-{path.split('/')[2]}-" not in key:
            self.mixed.add(key)
        self.used[path.endswith(".parquet")].add(key)
        return is_valid


def write(server, uri: str, *ids: int) -> None:
    import deltalake
    import pyarrow as pa

    options = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }
    deltalake.write_deltalake(uri, pa.table({"id": pa.array(ids, pa.int64())}), mode="append", storage_options=options)


def read_ids(server, uri: str) -> list[int]:
    import deltalake

    options = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    options |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return sorted(deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table().column("id").to_pylist())
