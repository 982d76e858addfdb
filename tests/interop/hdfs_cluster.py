"""A real HDFS on loopback: a NameNode and a DataNode in one JVM, from Hadoop's own test cluster."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Self

from airflow_provider_fds.spark.installation import jars
from airflow_provider_fds.spark.installation.cache import default_cache_dir, locked

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

PACKAGE = "org.apache.hadoop:hadoop-client-minicluster:3.4.2"


def minicluster_jars() -> Path:
    """Return the folder of the cluster's JARs, resolved through Ivy once per machine (about 90 MB)."""
    cache = default_cache_dir()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = cache / "hadoop-minicluster"
    with locked(cache / "hadoop-minicluster.lock"):
        if not kept.is_dir():
            jars._resolve(PACKAGE, cache / "hadoop-minicluster.ivy").replace(kept)
    return kept


class HdfsCluster:
    """A cluster on a free port, as long as it is entered.

    Attributes:
        uri: ``hdfs://127.0.0.1:<port>``
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        details = self._folder / "details.json"
        java = ["java", "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{minicluster_jars()}/*"]
        manager = ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format", "-datanodes", "1"]
        arguments = ["-nnport", "0", "-writeDetails", str(details), f"-Dtest.build.data={self._folder / 'data'}"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*java, *manager, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 120
        while not (details.is_file() and (text := details.read_text())):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"HDFS did not start:\n{(self._folder / 'log').read_text()[-4000:]}")
            time.sleep(0.1)
        self.uri = f"hdfs://127.0.0.1:{json.loads(text)['namenode_port']}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
