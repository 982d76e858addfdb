"""A Kubernetes on this machine: its real API server with etcd, and a stand-in for scheduler and kubelet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import yaml

from tests.kubelet import Kubelet
from tests.yarn_cluster import _free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "spark"
#: What a cluster's administrator creates, as the page on clusters says.
ROLES = ROOT / "docs" / "kubernetes" / "roles.yaml"
_ADMIN = "admin-token"
_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
_SECONDS = 60
_AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""


class KubernetesProcesses:
    """An API server that runs, with the pods that it has.

    Attributes:
        url: Its address.
        token_file: File with the token of Airflow's service account.
        ca_file: File with the certificate of the API server.
        kubelet: What runs the pods.
    """

    def __init__(self, folder: Path) -> None:
        script = ROOT / "scripts" / "kube_apiserver.sh"
        self._programs = Path(subprocess.run([script], capture_output=True, text=True, check=True).stdout.strip())
        self._folder = folder
        self._port, self._etcd_port, peers = _free_ports(3)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://127.0.0.1:{self._port}"
        self.token_file = folder / "token"
        self.ca_file = folder / "certs" / "apiserver.crt"
        self._client = httpx.Client(
            base_url=self.url, verify=False, timeout=20, headers={"Authorization": f"Bearer {_ADMIN}"}
        )
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{peers}"
        self._etcd = ["--data-dir", "etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd]
        self._etcd += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self._etcd += ["--initial-cluster", f"default={peer}", "--unsafe-no-fsync"]
        (folder / "tokens.csv").write_text(f"{_ADMIN},admin,admin,system:masters\n")
        (folder / "audit.yaml").write_text(_AUDIT)
        subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)

    def start(self) -> None:
        """Start all, and create what the page on clusters tells an administrator to create."""
        self._start("etcd", self._etcd)
        self.start_server()
        self.wait_for_server()
        for each in yaml.safe_load_all(ROLES.read_text()):
            self._create(each)
        self.token_file.write_text(self.token_of("airflow"))
        certificate = (self.ca_file, self.ca_file.with_suffix(".key"))
        self.kubelet = Kubelet(self._folder / "pods", self._client, NAMESPACE, self.token_of, certificate)
        self.kubelet.start()

    def start_server(self) -> None:
        """Start the API server, and return at once."""
        here = "127.0.0.1"
        self._start(
            "kube-apiserver",
            [
                *("--etcd-servers", f"http://{here}:{self._etcd_port}", "--bind-address", here),
                *("--secure-port", str(self._port), "--cert-dir", "certs", "--advertise-address", here),
                *("--service-account-key-file", "sa.key", "--service-account-signing-key-file", "sa.key"),
                *("--service-account-issuer", "https://kubernetes.default.svc", "--token-auth-file", "tokens.csv"),
                *("--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/24"),
                # there are no controllers, which create the default account of a namespace
                *("--disable-admission-plugins", "ServiceAccount", "--endpoint-reconciler-type", "none"),
                *("--kubelet-preferred-address-types", "InternalIP"),
                *("--audit-policy-file", "audit.yaml", "--audit-log-path", "audit.log"),
            ],
        )

    def wait_for_server(self) -> None:
        """Wait until the API server answers."""
        until = time.monotonic() + _SECONDS
        while True:
            try:
                if self._client.get("/readyz").text == "ok":
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > until or self._processes["kube-apiserver"].poll() is not None:
                raise TimeoutError(f"no API server:\n{(self._folder / 'kube-apiserver.log').read_text()[-3000:]}")
            time.sleep(0.2)

    def kill_server(self) -> None:
        """Kill the API server without a word."""
        self._processes["kube-apiserver"].kill()
        self._processes["kube-apiserver"].wait()

    def stop(self) -> None:
        """End all."""
        if hasattr(self, "kubelet"):
            self.kubelet.stop()
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        self._client.close()

    def pods(self, role: str = "driver") -> list[dict[str, Any]]:
        """Return all pods of drivers, or of executors, the oldest first."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=spark-role={role}"
        found = self._client.get(path).raise_for_status().json()["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def post_pod(self, pod: dict[str, Any], phase: str) -> None:
        """Create a pod that nobody runs."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self._client.post(path, json=pod).raise_for_status()
        self._patch(f"{path}/{pod['metadata']['name']}/status", {"status": {"phase": phase}})

    def token_of(self, account: str) -> str:
        """Return a token of a service account."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self._client.post(path, json=body).raise_for_status().json()["status"]["token"])

    def used(self, account: str) -> set[tuple[str, str, int]]:
        """Return what an account has asked for, from the audit log: resource, verb, status of the answer."""
        found = set()
        for line in (self._folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:{account}" and "objectRef" in event:
                ref = event["objectRef"]
                name = "/".join([ref["resource"], *([ref["subresource"]] if "subresource" in ref else [])])
                found.add((name, event["verb"], event.get("responseStatus", {}).get("code", 0)))
        return found

    def _create(self, given: dict[str, Any]) -> None:
        group = given["apiVersion"]
        path = f"/apis/{group}" if "/" in group else f"/api/{group}"
        if namespace := given["metadata"].get("namespace"):
            path += f"/namespaces/{namespace}"
        answer = self._client.post(f"{path}/{_PLURALS[given['kind']]}", json=given)
        assert answer.status_code == 201, answer.text

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self._client.patch(path, content=json.dumps(body), headers=headers).raise_for_status()

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._programs / name, *arguments],
                cwd=self._folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self._folder), "GOMAXPROCS": "2"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@contextmanager
def running_kubernetes(folder: Path) -> Iterator[KubernetesProcesses]:
    """Start a Kubernetes of one node, and end it afterwards."""
    found = KubernetesProcesses(folder)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder / "etcd", ignore_errors=True)
        stack.callback(found.stop)
        found.start()
        yield found
