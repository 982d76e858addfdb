"""Kubernetes: spark-submit makes the driver's pod, under a name chosen here, and the API server is asked about it."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow_provider_fds.spark.clusters.cluster import Cluster, ClusterError, Handle, Look
from airflow_provider_fds.spark.clusters.kubernetes_api import KubernetesApi

if TYPE_CHECKING:
    from airflow_provider_fds.spark.clusters.cluster import DriverRequest

#: Settings that each driver gets from here.
POD_NAME: Final = "spark.kubernetes.driver.pod.name"
WAITS: Final = "spark.kubernetes.submission.waitAppCompletion"

#: Label that tells whose call has made a pod.
_START: Final = "fds-start"
#: Name of the container in which Spark runs a driver, unless a pod template names another one.
_CONTAINER: Final = "spark-kubernetes-driver"
#: Most characters of the claim in a name, which is a DNS label of at most 63.
_CLAIM_CHARACTERS: Final = 50
_TAIL_LINES: Final = 60
_DIAGNOSIS_CHARACTERS: Final = 2000

_OK: Final = frozenset({200, 202})
_NOT_FOUND: Final = 404


@dataclass(frozen=True)
class KubernetesCluster(KubernetesApi, Cluster):
    """A namespace of a Kubernetes cluster, in which spark-submit makes the pods of drivers.

    Spark gives these pods the restart policy ``Never``, so each is one attempt of its driver.
    """

    kind: ClassVar[str] = "kubernetes"

    @property
    def has_secret(self) -> bool:
        """Whether it has its token as a value, which nobody may store."""
        return bool(self.token)

    def handle(self, driver: str) -> Handle:
        """Return a driver by the name of its pod."""
        return Handle(self.address, driver)

    def start(self, request: DriverRequest) -> Handle:
        """Start a driver by spark-submit, in a pod whose name comes from the claim.

        No second pod gets the name: a driver of the claim that already runs is the one that is returned. If
        spark-submit fails or is killed, the pod that it has made nevertheless is deleted.

        Raises:
            ClusterError: The API server does not answer, or refuses.
            Exception: As ``request.submit``.
        """
        assert request.submit is not None  # noqa: S101 - the request is for Kubernetes
        assert request.claim  # noqa: S101 - likewise
        name, is_taken = self._name(request.claim)
        handle, start = self.handle(name), uuid.uuid4().hex
        if is_taken:
            return handle
        try:
            # the API server, not the process of spark-submit, tells how the driver ends
            request.submit({POD_NAME: name, f"spark.kubernetes.driver.label.{_START}": start, WAITS: "false"})
        except BaseException as error:
            made_by = self._made_by(name)
            if made_by is None:
                raise
            label, uid = made_by
            if label == start:
                self._delete(name, {"preconditions": {"uid": uid}})
                raise
            # another process has started it for the same claim
            if not isinstance(error, Exception):
                raise
        return handle

    def look(self, handle: Handle) -> Look:
        """Return the state of a driver's pod.

        The API server knows all pods, also after a restart: one that it does not know was deleted.
        """
        if handle.cluster != self.address:
            return Look("unknown", words=f"it was started in {handle.cluster}, but the connection names {self.address}")
        try:
            status, pod = self.pod("GET", handle.id)
        except ClusterError as error:
            return Look("unknown", words=str(error))
        if _is_missing(status, pod):
            return Look("ended", has_failed=True, words="its pod was deleted")
        if status not in _OK:
            return Look("unknown", words=f"HTTP {status}, {_message(pod)}")
        return _state(pod)

    def stop(self, handle: Handle) -> str | None:
        """Have the pod deleted, with those of its executors; no error if it is gone."""
        return self._delete(handle.id)

    def log_page(self, handle: Handle) -> str | None:  # noqa: ARG002 - there is none for any driver
        """Return that there is no such page."""
        return ""

    def last_lines(self, handle: Handle) -> tuple[str, ...]:
        """Return the last lines of the driver's log, as long as its node has them."""
        try:
            status, pod = self.pod("GET", handle.id)
        except ClusterError:
            return ()
        if status not in _OK:
            return ()
        found = self.log(handle.id, str(_container(pod).get("name") or ""), _TAIL_LINES)
        return tuple(line for line in found.splitlines() if line.strip())

    def _name(self, claim: str) -> tuple[str, bool]:
        """Return the first name for the claim that no ended pod has, and whether a pod has it."""
        label = re.sub(r"[^a-z0-9]+", "-", claim.lower())[:_CLAIM_CHARACTERS].strip("-")
        for number in count():
            name = f"fds-{label}-{number}"
            status, pod = self.pod("GET", name)
            if _is_missing(status, pod):
                return name, False
            if status not in _OK:
                raise ClusterError(f"{self.server} does not tell whether there is a pod {name}: {_message(pod)}")
            if _state(pod).state != "ended":
                return name, True
        raise AssertionError  # pragma: no cover - the loop has no end

    def _made_by(self, name: str) -> tuple[str, str] | None:
        """Return the label of the call that has made a pod, and the pod's uid; ``None``: there is none."""
        try:
            status, pod = self.pod("GET", name)
        except ClusterError:
            return None
        metadata = pod.get("metadata")
        if status not in _OK or not isinstance(metadata, dict):
            return None
        return str(metadata.get("labels", {}).get(_START)), str(metadata.get("uid"))

    def _delete(self, name: str, options: dict[str, Any] | None = None) -> str | None:
        try:
            status, answer = self.pod("DELETE", name, options)
        except ClusterError as error:
            return str(error)
        if status in _OK or _is_missing(status, answer):
            return None
        return f"HTTP {status}, {_message(answer)}"


def _is_missing(status: int, answer: dict[str, Any]) -> bool:
    """Whether the API server itself says that there is no such pod, not a proxy that there is no such page."""
    details = answer.get("details")
    return status == _NOT_FOUND and isinstance(details, dict) and details.get("kind") == "pods"


def _message(answer: dict[str, Any]) -> str:
    return str(answer.get("message") or "no reason given")


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the status of the driver's container, empty before there is one."""
    status = pod.get("status")
    found = (status.get("containerStatuses") if isinstance(status, dict) else None) or []
    return next((each for each in found if each.get("name") == _CONTAINER), found[0] if found else {})


def _state(pod: dict[str, Any]) -> Look:
    if not isinstance(pod.get("status"), dict) or not isinstance(pod.get("metadata"), dict):
        return Look("unknown", words=f"HTTP 200, {_message(pod)}")
    phase = str(pod["status"].get("phase") or "")
    state = _container(pod).get("state") or {}
    # another container of the pod may go on without the driver's
    if (ended := state.get("terminated")) is not None or phase in ("Succeeded", "Failed"):
        return _end(pod["status"], ended or {}, has_failed=phase == "Failed" or bool((ended or {}).get("exitCode")))
    if pod["metadata"].get("deletionTimestamp"):
        # for ever, if its node is lost
        return Look("unknown", words=f"{phase}: it is being deleted")
    if phase not in ("Pending", "Running"):
        return Look("unknown", words=phase)
    return Look("running", words=_joined(phase, *_waits_for(pod["status"], state)))


def _end(status: dict[str, Any], ended: dict[str, Any], *, has_failed: bool) -> Look:
    """Return how a driver has ended: what Kubernetes did to the pod, then what became of the driver's process."""
    if not has_failed:
        return Look("ended", words="Succeeded")
    code = None if ended.get("exitCode") is None else f"exit code {ended['exitCode']}"
    reason = None if ended.get("reason") == "Error" else ended.get("reason")
    words = _joined("Failed", status.get("reason"), status.get("message"), code, reason, ended.get("message"))
    return Look("ended", has_failed=True, words=words)


def _waits_for(status: dict[str, Any], state: dict[str, Any]) -> tuple[object, object]:
    """Return for what a pod waits that does not run yet, if Kubernetes says so: an image, or a node with room."""
    waiting = state.get("waiting")
    if waiting is None and "running" not in state:
        conditions = status.get("conditions") or []
        waiting = next((each for each in conditions if each.get("status") == "False"), None)
    return (waiting or {}).get("reason"), (waiting or {}).get("message")


def _joined(*parts: object) -> str:
    return ": ".join(str(part).strip() for part in parts if part)[:_DIAGNOSIS_CHARACTERS]
