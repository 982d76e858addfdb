"""The protocol of a cluster that runs drivers: a few verbs on values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: How long a cluster may not tell the state of a driver before the attempt that waits for it fails.
LOST_SECONDS: Final = 600.0


class ClusterError(Exception):
    """The cluster refuses, or does not answer."""


@dataclass(frozen=True)
class DriverRequest:
    """A driver to start.

    Attributes:
        name: Name of the application.
        resource: URI of the driver's modules, an archive that Python runs, where each node of the cluster can read it.
        arguments: Arguments of the job.
        conf: Spark settings. Everybody who sees the nodes' processes can read them.
        env_vars: Environment of the driver. The cluster may keep it in a file.
        py_files: Further modules: paths that exist on each node.
        claim: Name of the attempt that the driver is started for, under which a cluster that allows it finds it again.
        submit: Runs spark-submit for this driver, with these settings besides its own, until spark-submit has ended;
            for a cluster that gets drivers from it.
    """

    name: str
    resource: str
    arguments: tuple[str, ...]
    conf: Mapping[str, str]
    env_vars: Mapping[str, str]
    py_files: tuple[str, ...] = ()
    claim: str = ""
    submit: Callable[[Mapping[str, str]], object] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Handle:
    """A driver in a cluster.

    Attributes:
        cluster: Address of the cluster.
        id: The cluster's name of the driver.
    """

    cluster: str
    id: str

    def asked_at(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        """Return where to ask about it: at addresses, and where it was started; a connection may name others by now."""
        return addresses if self.cluster in addresses else (*addresses, self.cluster)


@dataclass(frozen=True)
class Look:
    """What the cluster says of a driver.

    Attributes:
        state: ``unknown``: the cluster does not answer, or does not know.
        has_failed: Whether an ended driver did not succeed, as far as the cluster knows.
        words: The cluster's words for it.
    """

    state: Literal["running", "ended", "unknown"]
    has_failed: bool = False
    words: str = ""


class Cluster(Protocol):
    """A cluster that runs drivers.

    Attributes:
        kind: What kind of cluster it is; a ledger has it with the driver.
    """

    kind: ClassVar[str]

    @property
    def has_secret(self) -> bool:
        """Whether its fields hold a secret, which a trigger must not store."""
        return False

    def handle(self, driver: str) -> Handle:
        """Return a driver by the name that the cluster knows it by."""
        raise NotImplementedError

    def start(self, request: DriverRequest) -> Handle:
        """Start a driver.

        Raises:
            ClusterError: It was refused, or the cluster does not answer; then it may have been started.
        """
        raise NotImplementedError

    def look(self, handle: Handle) -> Look:
        """Return what the cluster says of a driver; raises nothing."""
        raise NotImplementedError

    def stop(self, handle: Handle) -> str | None:
        """Stop a driver; return what the cluster says against it, else ``None``; raises nothing."""
        raise NotImplementedError

    def log_page(self, handle: Handle) -> str | None:  # noqa: ARG002 - for clusters that can
        """Return the page with a driver's log, ``None`` if only the driver may know it, empty if there is none.

        Raises nothing.
        """
        return None

    def last_lines(self, handle: Handle) -> tuple[str, ...]:  # noqa: ARG002 - likewise
        """Return the last lines of a driver's log, if the cluster hands them out; raises nothing."""
        return ()
