"""A stand-in for scheduler, kubelet and garbage collector: runs the pods of Spark as processes of this machine.

It does what Spark and FDS look at: a pod gets a node, waits for its config maps, has a phase, an address, the state and
exit code of its container, a log, and its processes end before it is gone. A pod whose owner is gone is deleted.
Images, resources, other volumes and the names of services are ignored: all addresses are 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx

from airflow_provider_fds.spark.installation.install import bundled_spark_home

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

_NODE = "stand-in"
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 3.0
_OPENED = ("lang", "lang.invoke", "io", "net", "nio", "util", "util.concurrent")
_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


class Kubelet:
    """Runs pods from :meth:`start` to :meth:`stop`.

    Args:
        folder: Each pod gets a folder there, for its configuration and its log.
        client: Asks the API server as its administrator.
        namespace: The namespace of the pods.
        token_of: Returns a token of a service account.
        certificate: Files with certificate and key of the server that hands out logs.
    """

    def __init__(
        self,
        folder: Path,
        client: httpx.Client,
        namespace: str,
        token_of: Callable[[str], str],
        certificate: tuple[Path, Path],
    ) -> None:
        self._folder = folder
        self._client = client
        self._namespace = f"/api/v1/namespaces/{namespace}"
        self._token_of = token_of
        #: By the pod's uid: its process, its name, its container, and when it began.
        self._running: dict[str, tuple[subprocess.Popen[bytes], str, str, str]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubelet", daemon=True)
        self._logs = _log_server(folder, certificate)

    def start(self) -> None:
        """Register the node, and run pods from now on."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
        self._client.post("/api/v1/nodes", json=node).raise_for_status()
        address = {"type": "InternalIP", "address": "127.0.0.1"}
        endpoint = {"kubeletEndpoint": {"Port": self._logs.server_port}}
        self._patch(f"/api/v1/nodes/{_NODE}/status", {"addresses": [address], "daemonEndpoints": endpoint})
        threading.Thread(target=self._logs.serve_forever, args=(0.05,), daemon=True).start()
        self._thread.start()

    def stop(self) -> None:
        """Kill what runs, and return."""
        self._ended.set()
        self._thread.join()
        self._logs.shutdown()
        self._logs.server_close()
        for process, *_ in self._running.values():
            _signal(process, signal.SIGKILL)
            process.wait()

    def process_of(self, pod: str) -> subprocess.Popen[bytes] | None:
        """Return the process of a pod, ``None`` if it has none."""
        return next((process for process, name, *_ in list(self._running.values()) if name == pod), None)

    def log_of(self, pod: str) -> str:
        """Return what a pod has printed so far."""
        return "".join(path.read_text(errors="replace") for path in self._folder.glob(f"{pod}/log"))

    def _work(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            with suppress(httpx.HTTPError):
                # the API server may be away; then nothing changes
                self._step()

    def _step(self) -> None:
        found = self._client.get(f"{self._namespace}/pods?labelSelector=spark-role").raise_for_status().json()["items"]
        pods = {pod["metadata"]["uid"]: pod for pod in found}
        for uid, pod in pods.items():
            with suppress(httpx.HTTPStatusError):
                # such as for an account that does not exist: the pod waits
                self._care(uid, pod, pods.keys())
        for uid, (process, name, container, began) in list(self._running.items()):
            if process.poll() is not None and uid in pods:
                code = process.returncode if process.returncode >= 0 else 128 - process.returncode
                ended = {"exitCode": code, "startedAt": began, "finishedAt": _now()}
                ended["reason"] = "Error" if code else "Completed"
                self._tell(name, container, "Failed" if code else "Succeeded", {"terminated": ended}, began)
                # what it has left
                _signal(process, signal.SIGKILL)
                del self._running[uid]

    def _care(self, uid: str, pod: dict[str, Any], known: Collection[str]) -> None:
        """Begin or end a pod, if it should."""
        name = pod["metadata"]["name"]
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences", [])}
        if pod["metadata"].get("deletionTimestamp") or (owners and owners.isdisjoint(known)):
            if uid in self._running:
                self._end(uid)
            self._client.delete(f"{self._namespace}/pods/{name}?gracePeriodSeconds=0")
        elif pod["status"].get("phase") == "Pending" and uid not in self._running and self._has_files(pod):
            self._begin(uid, pod)

    def _has_files(self, pod: dict[str, Any]) -> bool:
        """Whether the pod's config maps are there, which Spark creates after the pod."""
        return all(self._client.get(url).status_code == httpx.codes.OK for url in self._config_maps(pod))

    def _config_maps(self, pod: dict[str, Any]) -> list[str]:
        volumes = pod["spec"].get("volumes", [])
        maps = [volume["configMap"]["name"] for volume in volumes if volume.get("configMap")]
        return [f"{self._namespace}/configmaps/{name}" for name in maps]

    def _begin(self, uid: str, pod: dict[str, Any]) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for url in self._config_maps(pod):
            for file, text in self._client.get(url).raise_for_status().json().get("data", {}).items():
                (folder / file).write_text(text)
        (folder / "token").write_text(self._token_of(pod["spec"].get("serviceAccountName") or "default"))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        target = {"target": {"kind": "Node", "name": _NODE}}
        self._client.post(f"{self._namespace}/pods/{name}/binding", json=binding | target).raise_for_status()
        env = {each["name"]: each.get("value") or "127.0.0.1" for each in container.get("env", [])}
        env |= {"SPARK_LOCAL_DIRS": str(folder), "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        own = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYSPARK_PYTHON": sys.executable}
        is_driver = container["args"][0] == "driver"
        command = self._driver(container["args"], folder) if is_driver else _executor(env, name)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**own, **env, "SPARK_HOME": str(bundled_spark_home())},
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        began = _now()
        self._running[uid] = (process, name, container["name"], began)
        self._tell(name, container["name"], "Running", {"running": {"startedAt": began}}, began)

    def _driver(self, args: list[str], folder: Path) -> list[str]:
        """Return what the entry point of Spark's image runs, with loopback addresses."""
        at = args.index("--properties-file") + 1
        properties = folder / args[at].rpartition("/")[2]
        conf = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.port": "0",
            "spark.driver.blockManager.port": "0",
            "spark.kubernetes.driver.master": str(self._client.base_url).rstrip("/"),
            "spark.kubernetes.trust.certificates": "true",
            "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": str(folder / "token"),
        }
        settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        rest = [*args[1:at], str(properties), *args[at + 1 :]]
        return [str(bundled_spark_home() / "bin" / "spark-submit"), *settings, "--deploy-mode", "client", *rest]

    def _end(self, uid: str) -> None:
        process, *_ = self._running.pop(uid)
        _signal(process, signal.SIGTERM)
        until = time.monotonic() + _GRACE_SECONDS
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        _signal(process, signal.SIGKILL)
        process.wait()

    def _tell(self, name: str, container: str, phase: str, state: dict[str, Any], began: str) -> None:
        is_up = phase == "Running"
        told = {"name": container, "image": "x", "imageID": "x", "restartCount": 0, "ready": is_up, "started": is_up}
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "startTime": began,
            "containerStatuses": [told | {"state": state}],
        }
        self._patch(f"{self._namespace}/pods/{name}/status", status)

    def _patch(self, path: str, status: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        body = json.dumps({"status": status})
        self._client.patch(path, content=body, headers=headers).raise_for_status()


def _executor(env: dict[str, str], pod: str) -> list[str]:
    """Return what the entry point of Spark's image runs."""
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    opened += [f"--add-opens=java.base/sun.{name}=ALL-UNNAMED" for name in ("nio.ch", "security.action")]
    options = [value for name, value in sorted(env.items()) if name.startswith("SPARK_JAVA_OPT_")]
    class_path = ":".join([f"{bundled_spark_home()}/jars/*", *filter(None, [env.get("SPARK_EXTRA_CLASSPATH")])])
    arguments = {
        "--driver-url": env["SPARK_DRIVER_URL"],
        "--executor-id": env["SPARK_EXECUTOR_ID"],
        "--cores": env["SPARK_EXECUTOR_CORES"],
        "--app-id": env["SPARK_APPLICATION_ID"],
        "--hostname": "127.0.0.1",
        "--resourceProfileId": env.get("SPARK_RESOURCE_PROFILE_ID", "0"),
        "--podName": pod,
    }
    words = [word for pair in arguments.items() for word in pair]
    return ["java", *opened, *options, "-Xmx512m", "-cp", class_path, _EXECUTOR, *words]


def _log_server(folder: Path, certificate: tuple[Path, Path]) -> ThreadingHTTPServer:
    """Return a server that answers the API server as a kubelet does that is asked for a log."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            _, kind, _namespace, pod, _container = parts.path.split("/")
            assert kind == "containerLogs"
            lines = (folder / pod / "log").read_bytes().splitlines(keepends=True)
            data = b"".join(lines[-int(parse_qs(parts.query).get("tailLines", ["100000"])[0]) :])
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _signal(process: subprocess.Popen[bytes], sign: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
