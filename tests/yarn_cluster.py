"""A YARN of one node on this machine: a ResourceManager and a NodeManager, as real processes, without HDFS."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from airflow_provider_fds.spark.installation import jars
from airflow_provider_fds.spark.installation.cache import default_cache_dir, locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_VERSION = "3.5.0"
#: The NodeManager does not start without the classes of the timeline service.
_ARTIFACTS = ("yarn-server-resourcemanager", "yarn-server-nodemanager", "yarn-server-timelineservice", "common")
_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "io", "net", "nio")]
_LOG4J = """log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""
_SECONDS = 120


def yarn_jars() -> Path:
    """Return the folder of YARN's JARs, resolved through Ivy once per machine (about 90 MB)."""
    cache = default_cache_dir()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = cache / f"hadoop-yarn-{_VERSION}"
    with locked(cache / "hadoop-yarn.lock"):
        if not kept.is_dir():
            packages = ",".join(f"org.apache.hadoop:hadoop-{name}:{_VERSION}" for name in _ARTIFACTS)
            jars._resolve(packages, cache / "hadoop-yarn.ivy").replace(kept)
    return kept


class YarnProcesses:
    """A YARN that runs.

    Attributes:
        conf: Folder of Hadoop's configuration, for clients.
        address: Address of the ResourceManager's web server.
        staging: Folder for the files of applications.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.conf = folder / "conf"
        self.staging = folder / "staging"
        web, *others = _free_ports(5)
        self.address = f"http://127.0.0.1:{web}"
        for each in (self.conf, self.staging):
            each.mkdir(parents=True)
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
        self._write("yarn-site", _settings(folder, web, *others))
        self._write(
            "capacity-scheduler",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                # a second application would wait for the first one
                "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
            },
        )
        (self.conf / "log4j.properties").write_text(_LOG4J)

    def start(self) -> None:
        """Start both processes, and wait until the node has registered."""
        self.start_manager()
        self._start("node", _NODE)
        until = time.monotonic() + _SECONDS
        while not any(node["state"] == "RUNNING" for node in self._nodes()):
            if time.monotonic() > until:
                raise TimeoutError(f"no node of YARN after {_SECONDS} s:\n{self._log('manager')}\n{self._log('node')}")
            time.sleep(0.2)

    def start_manager(self) -> None:
        """Start the ResourceManager, and return at once."""
        self._start("manager", _MANAGER)

    def kill_manager(self) -> None:
        """Kill the ResourceManager without a word."""
        self._processes["manager"].kill()
        self._processes["manager"].wait()

    def stop(self) -> None:
        """End both processes; the node ends its containers."""
        # it takes leave of the manager, which has to be there
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def applications(self) -> list[dict[str, object]]:
        """Return what the ResourceManager says of all applications."""
        found = self._ask("/ws/v1/cluster/apps").get("apps") or {}
        return list(found.get("app") or [])

    def _nodes(self) -> list[dict[str, object]]:
        try:
            found = self._ask("/ws/v1/cluster/nodes").get("nodes") or {}
        except (URLError, OSError):
            return []
        return list(found.get("node") or [])

    def _ask(self, path: str) -> dict[str, dict[str, list[dict[str, object]]] | None]:
        request = Request(f"{self.address}{path}", headers={"Accept": "application/json"})
        with urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def _start(self, name: str, main: str) -> None:
        light = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["java", *light, *_OPENED, "-cp", f"{self.conf}{os.pathsep}{yarn_jars()}/*", main],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        lines = (
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
            for key, value in settings.items()
        )
        (self.conf / f"{name}.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


@contextmanager
def running_yarn(folder: Path) -> Iterator[YarnProcesses]:
    """Start a YARN of one node, and end it afterwards."""
    found = YarnProcesses(folder)
    with ExitStack() as stack:
        stack.callback(found.stop)
        found.start()
        yield found


def _settings(folder: Path, web: int, *ports: int) -> dict[str, str]:
    manager, node, here = "yarn.resourcemanager", "yarn.nodemanager", "127.0.0.1"
    servers = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    return {
        f"{manager}.hostname": here,
        f"{manager}.bind-host": here,
        f"{manager}.webapp.address": f"{here}:{web}",
        **{f"{manager}.{name}": f"{here}:{port}" for name, port in zip(servers, ports, strict=True)},
        # it goes on with the applications that it had
        f"{manager}.recovery.enabled": "true",
        f"{manager}.store.class": f"{_MANAGER.rpartition('.')[0]}.recovery.FileSystemRMStateStore",
        f"{manager}.fs.state-store.uri": (folder / "state").as_uri(),
        f"{node}.hostname": here,
        f"{node}.bind-host": here,
        **{f"{node}.{name}": f"{here}:0" for name in ("address", "localizer.address", "webapp.address")},
        f"{node}.resource.memory-mb": "8192",
        f"{node}.resource.cpu-vcores": "8",
        f"{node}.pmem-check-enabled": "false",
        f"{node}.vmem-check-enabled": "false",
        f"{node}.disk-health-checker.enable": "false",
        # without the checks in between, it still refuses a disk that is fuller than this when it starts
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        f"{node}.local-dirs": str(folder / "local"),
        f"{node}.log-dirs": str(folder / "logs"),
        "yarn.scheduler.minimum-allocation-mb": "64",
    }


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


__all__ = ["YarnProcesses", "running_yarn", "yarn_jars"]
