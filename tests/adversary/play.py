"""Runs scenarios: kinds by name, one seed each, and their outcomes."""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.adversary import warm
from tests.adversary.airflow_host import AirflowHost
from tests.adversary.command_host import CommandHost
from tests.adversary.scene import NotRunError, Scene, VerdictError
from tests.adversary.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The kinds by name; each module of kinds adds its own.
KINDS: Final[dict[str, Callable[[Scene], None]]] = {}


def kind(function: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Add a kind; its name is the function's, with spaces."""
    KINDS[function.__name__.replace("_", " ")] = function
    return function


@dataclass
class Played:
    """The outcome of a scenario; ``verdict`` is ``passed``, ``lost``, ``doubled``, ``silent``, ``stuck``, ``broken``
    (the scenario itself) or ``not run``.
    """

    kind: str
    seed: int
    verdict: str
    text: str
    seconds: float
    commands: int
    timeline: list[str] = field(default_factory=list)
    is_silent: bool = False

    @property
    def has_verdict(self) -> bool:
        """Whether the scenario ran to an end that says something about the package."""
        return self.verdict not in ("not run", "broken")

    def __str__(self) -> str:
        head = f"{self.verdict:8} {self.kind!r} --seed {self.seed} ({self.seconds:.0f} s, {self.commands} commands)"
        if self.verdict == "passed":
            return head
        return "\n".join([f"{head}: {self.text}", *(f"    {line}" for line in self.timeline)])


class Stage:
    """What scenarios share: Connect servers, and one Airflow host per concurrent scenario."""

    def __init__(self, folder: Path, *, is_long: bool = False) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.servers = Servers(folder / "servers", are_lasting=is_long)
        self._commands: CommandHost | None = None
        self._hosts: dict[int, AirflowHost] = {}
        self._lock = threading.Lock()

    def commands(self) -> CommandHost:
        """Return the host of commands."""
        with self._lock:
            if self._commands is None:
                self._commands = CommandHost(self.folder)
            return self._commands

    def host(self) -> AirflowHost:
        """Return the Airflow of this thread."""
        with self._lock:
            mine = threading.get_ident()
            if mine not in self._hosts:
                home = self.folder / f"airflow-{len(self._hosts)}"
                first = next(iter(self._hosts.values()), None)
                self._hosts[mine] = AirflowHost(home, first.home / "airflow.db" if first else None)
            return self._hosts[mine]

    def play(self, name: str, seed: int, *, keep: bool = False) -> Played:
        """Run one scenario; its folder is kept if it failed."""
        root = self.folder / f"{name.replace(' ', '-')[:60]}-{seed}"
        shutil.rmtree(root, ignore_errors=True)
        scene = Scene(name, seed, root, self.servers, self.host, self.commands)
        began = time.monotonic()
        verdict, text, silent = "passed", "", False
        try:
            KINDS[name](scene)
        except VerdictError as failure:
            verdict, text = failure.verdict, str(failure)
            silent = verdict == "silent" or (scene.refusals == 0 and verdict in ("lost", "doubled"))
        except NotRunError as reason:
            verdict, text = "not run", str(reason)
        except Exception:  # noqa: BLE001 - an error of the scenario, not of the package
            verdict, text = "broken", traceback.format_exc()[-3000:]
        finally:
            scene.end()
        if verdict in ("passed", "not run") and not keep:
            shutil.rmtree(root, ignore_errors=True)
        else:
            (root / "timeline.txt").write_text("\n".join([f"{name} --seed {seed}: {text}", *scene.timeline]))
        seconds = time.monotonic() - began
        return Played(name, seed, verdict, text, seconds, len(scene.running), scene.timeline, silent)

    def stop(self) -> None:
        """End sessions, servers and hosts."""
        warm.close()
        self.servers.stop()
        for host in (*self._hosts.values(), *([self._commands] if self._commands else [])):
            host.stop()


def table_of(played: list[Played]) -> str:
    """Return the table of the page."""
    verdicts: dict[str, Counter[str]] = {}
    for one in played:
        verdicts.setdefault(one.kind, Counter())[one.verdict] += 1
    for one in played:
        if one.is_silent:
            verdicts[one.kind]["silently"] += 1
    lines = ["| kind | scenarios | lost | doubled | silent | stuck |", "|---|---:|---:|---:|---:|---:|"]
    total: Counter[str] = Counter()
    for name, found in sorted(verdicts.items()):
        total += found
        lines.append(_line(name, found))
    return "\n".join([*lines, _line("all", total)])


def _line(name: str, found: Counter[str]) -> str:
    runs = sum(number for verdict, number in found.items() if verdict not in ("silently", "not run", "broken"))
    cells = [str(runs) if runs else "not run here"]
    cells += [str(found[verdict] or "") for verdict in ("lost", "doubled", "silently", "stuck")]
    return f"| {name} | {' | '.join(cells)} |"
