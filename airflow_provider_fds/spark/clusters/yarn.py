"""YARN: spark-submit takes the driver there, and the ResourceManager is asked about it through its REST API."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from airflow_provider_fds.spark.clusters.cluster import Cluster, ClusterError, Handle, Look
from airflow_provider_fds.spark.clusters.rest import ask, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.spark.clusters.cluster import DriverRequest

_APPS: Final = "/ws/v1/cluster/apps"
_SERVER: Final = "YARN's ResourceManager"
#: Its filter against requests from other sites wants the second one, with any value.
_HEADERS: Final = {"Accept": "application/json", "X-XSRF-Header": "fds"}
_FIND_SECONDS: Final = 60.0
_FIND_PAUSE: Final = 0.5

_TAGS: Final = "spark.yarn.tags"
_RUNNING: Final = frozenset({"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"})
_ENDED: Final = frozenset({"FINISHED", "FAILED", "KILLED"})
_SUCCEEDED: Final = "SUCCEEDED"
#: What a driver that did not succeed told YARN, within a diagnosis that also has the end of its log.
_REASON: Final = re.compile(r"\(reason: (?P<text>[^\n]+)")
_END_OF_LOG: Final = re.compile(r"(?s)\s*(?:Error file: \S+\s*)?Last \d+ bytes of .*")
_DIAGNOSIS_CHARACTERS: Final = 2000

#: Address of the page with the log of a container, on the web server of its node.
_LOG_PAGE: Final = re.compile(r"(?P<node>https?://[^/]+)/node/containerlogs/(?P<container>container_\w+)/")
#: What Python prints is in stdout, what Spark logs in stderr.
_LOGS: Final = ("stderr", "stdout")
_TAIL_BYTES: Final = 4000
#: What a node puts around a log.
_CONTENTS: Final = re.compile(r"(?s)\nLogContents:\n(?P<text>.*?)\n?End of LogType:")


@dataclass(frozen=True)
class YarnCluster(Cluster):
    """The ResourceManagers of a YARN cluster, of which one is active; a standby one redirects to it.

    Attributes:
        resource_managers: Addresses of their web servers, ``http://rm1:8088``.
        user: Name under which applications are stopped.
        find_seconds: How long to search for an application that spark-submit has submitted.
    """

    kind: ClassVar[str] = "yarn"

    resource_managers: tuple[str, ...]
    user: str = "fds"
    find_seconds: float = _FIND_SECONDS

    def handle(self, driver: str) -> Handle:
        """Return a driver by the id of its application."""
        return Handle(self.resource_managers[0], driver)

    def start(self, request: DriverRequest) -> Handle:
        """Start a driver by spark-submit, under a tag that names the claim, and find its application by that tag.

        If spark-submit or the search fails or is killed, an application that was submitted nevertheless is stopped: no
        ledger has it.

        Raises:
            ClusterError: No ResourceManager shows the application.
            Exception: As ``request.submit``.
        """
        assert request.submit is not None  # noqa: S101 - the request is for YARN
        assert request.claim  # noqa: S101 - likewise
        tag = f"fds-{request.claim}"
        tags = [own for own in (request.conf.get(_TAGS), tag) if own]
        try:
            # the ResourceManager, not the process of spark-submit, tells how the driver ends
            request.submit({_TAGS: ",".join(tags), "spark.yarn.submit.waitAppCompletion": "false"})
            return self.handle(self._find(tag))
        except BaseException:
            self._stop_tagged(tag)
            raise

    def look(self, handle: Handle) -> Look:
        """Return the state that the active ResourceManager has of a driver.

        A ResourceManager that was started again knows no applications at first, or never, and any forgets them some
        day.
        """
        app, words = self._app(handle)
        if app is None:
            return Look("unknown", words=words)
        state, final = app["state"], app.get("finalStatus")
        if state in _RUNNING:
            return Look("running", words=state)
        if state not in _ENDED:
            return Look("unknown", words=state)
        told = final if state == "FINISHED" and isinstance(final, str) else state
        diagnosis = _diagnosis(str(app.get("diagnostics") or ""))
        return Look("ended", has_failed=final != _SUCCEEDED, words=f"{told}: {diagnosis}" if diagnosis else told)

    def stop(self, handle: Handle) -> str | None:
        """Have the application killed; no error if it has ended."""
        said: list[str] = []
        path = f"/{handle.id}/state?user.name={quote(self.user)}"
        for address, status, answer in self._answers(path, said, handle, state="KILLED"):
            state = answer.get("state")
            if status == HTTPStatus.ACCEPTED or (status == HTTPStatus.OK and state in _ENDED):
                return None
            # a proxy that redirects a PUT by 302 makes a GET of it, which tells the state
            problem = f"it is {state}" if status == HTTPStatus.OK else _message(answer)
            said.append(f"{address}: HTTP {status}, {problem}")
        return "; ".join(said)

    def log_page(self, handle: Handle) -> str | None:
        """Return the page with the log of the driver's container, once it has one."""
        app, _ = self._app(handle)
        page = None if app is None else app.get("amContainerLogs")
        return page if isinstance(page, str) and _LOG_PAGE.match(page) else None

    def last_lines(self, handle: Handle) -> tuple[str, ...]:
        """Return the last lines of the driver's stderr and stdout, from the web server of its node.

        There are none once the node has handed the log over to YARN's log aggregation.
        """
        page = _LOG_PAGE.match(self.log_page(handle) or "")
        if page is None:
            return ()
        lines: list[str] = []
        for name in _LOGS:
            url = f"{page['node']}/ws/v1/node/containers/{page['container']}/logs/{name}?size=-{_TAIL_BYTES}"
            if found := _CONTENTS.search(text(url)):
                # the first line may be the end of a longer one
                lines += [f"{name}: {line}" for line in found["text"].splitlines() if line.strip()]
        return tuple(lines)

    def _answers(
        self, path: str, said: list[str], handle: Handle | None = None, *, state: str | None = None
    ) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Ask the ResourceManagers one by one about applications, or to change the state of one.

        Args:
            path: Behind the address of the applications.
            said: Gets why a ResourceManager does not answer.
            handle: The application, if the question is about one.
            state: The new state.

        Yields:
            Address, status and answer of each that answers.
        """
        method, body = ("GET", None) if state is None else ("PUT", {"state": state})
        addresses = self.resource_managers
        if handle is not None:
            addresses = handle.asked_at(addresses)
        for address in addresses:
            try:
                url = f"{address}{_APPS}{path}"
                status, answer = ask(method, url, _SERVER, headers=_HEADERS, body=body, follow_redirects=True)
            except ClusterError as error:
                said.append(str(error))
            else:
                yield address, status, answer

    def _app(self, handle: Handle) -> tuple[dict[str, Any] | None, str]:
        """Return what a ResourceManager says of an application, or ``None`` with the reason."""
        said: list[str] = []
        for address, status, answer in self._answers(f"/{handle.id}", said, handle):
            app = answer.get("app")
            if isinstance(app, dict) and isinstance(app.get("state"), str):
                return app, ""
            said.append(f"{address} does not know it: HTTP {status}, {_message(answer)}")
        return None, "; ".join(said)

    def _find(self, tag: str) -> str:
        """Return the id of the newest application with a tag."""
        until = time.monotonic() + self.find_seconds
        while True:
            apps, words = self._tagged(tag)
            if apps:
                return str(max(apps, key=lambda app: app.get("startedTime") or 0)["id"])
            if time.monotonic() >= until:
                raise ClusterError(
                    f"spark-submit has submitted the driver to YARN, but no ResourceManager shows an application with "
                    f"the tag {tag} ({words})"
                )
            time.sleep(_FIND_PAUSE)

    def _stop_tagged(self, tag: str) -> None:
        for app in self._tagged(tag)[0]:
            self.stop(self.handle(str(app["id"])))

    def _tagged(self, tag: str) -> tuple[list[dict[str, Any]], str]:
        """Return the applications with a tag, or none with the reason."""
        said: list[str] = []
        for address, status, answer in self._answers(f"?applicationTags={quote(tag)}", said):
            apps = answer.get("apps")
            found = apps.get("app") if isinstance(apps, dict) else None
            if found:
                return [app for app in found if isinstance(app, dict) and "id" in app], ""
            said.append(f"{address}: HTTP {status}, {_message(answer)}")
        return [], "; ".join(said)


def _diagnosis(text: str) -> str:
    """Return what a diagnosis says, without the end of the driver's log."""
    reason = _REASON.search(text)
    found = _END_OF_LOG.sub("", text) if reason is None else reason["text"]
    return found.strip()[:_DIAGNOSIS_CHARACTERS]


def _message(answer: dict[str, Any]) -> str:
    told = answer.get("RemoteException", answer)
    said = told.get("message") if isinstance(told, dict) else None
    return str(said or "no such application")
