"""Write the table of reason codes in docs/errors.md, from the comments in ``reasons.py`` and the classes of errors.

scripts/reason_table.py            write the table
scripts/reason_table.py --check    fail if the page has another one
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_fds import errors
from airflow_provider_fds.batch.report import AttemptReport
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.batch_failure import failure_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "airflow_provider_fds"
PAGE: Final = ROOT / "docs" / "errors.md"
BEGIN: Final = "<!-- reasons: written by scripts/reason_table.py -->\n"
END: Final = "<!-- reasons: end -->"

_HEAD: Final = (
    "| code | meaning | what to do | retryable | exit code |",
    "|---|---|---|---|---|",
)
_TO_DO: Final = "To do: "


@cache
def kinds() -> tuple[type[FdsError], ...]:
    """Return all error classes of the package."""
    for part in ("ledger", "stream", "source", "delta", "batch"):
        package = importlib.import_module(f"airflow_provider_fds.{part}")
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")
    result: list[type[FdsError]] = []
    queue: list[type[FdsError]] = [FdsError]
    while queue:
        result.append(queue.pop())
        queue += [kind for kind in result[-1].__subclasses__() if kind.__module__.startswith("airflow_provider_fds.")]
    return tuple(result)


@cache
def raised() -> dict[Reason, set[type[FdsError]]]:
    """Return each reason with the classes of errors that have it, by the classes and by the calls in the package."""
    by_name = {kind.__name__: kind for kind in kinds()}
    by_name["refusal"] = errors.LedgerError
    found: dict[Reason, set[type[FdsError]]] = {}
    for kind in kinds():
        found.setdefault(kind.reason, set()).add(kind)
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            for given in call.keywords:
                if given.arg == "reason" and name in by_name:
                    for code in re.findall(r"Reason\.([A-Z_]+)", ast.unparse(given.value)):
                        found.setdefault(Reason[code], set()).add(by_name[name])
    for refused, retryable in refusals():
        report = AttemptReport("u", 1, 0, "d", "a", "failed", reason=refused, retryable=retryable)
        found.setdefault(refused, set()).add(failure_kind(report)[0])
    # chosen by a condition before the call
    found.setdefault(Reason.STREAM_HELD, set()).add(errors.StoppedError)
    found.setdefault(Reason.STREAM_QUARANTINED, set()).add(errors.StoppedError)
    found.setdefault(Reason.USER_FUNCTION_INTERRUPTED, set()).add(errors.BatchFailedError)
    return found


def refusals() -> Iterator[tuple[Reason, bool]]:
    """Yield the reason of each problem that the driver reports, and whether the driver wants a retry."""
    for path in (PACKAGE / "spark").rglob("*.py"):
        if path.name == "user_job.py":
            # shown by the user's own job
            continue
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("RefusalError", "Failure"):
                code = getattr(call.args[0], "attr", "")
                retryable = [ast.unparse(given.value) for given in call.keywords if given.arg == "retryable"]
                if code in Reason.__members__:
                    yield Reason[code], retryable == ["True"]


def texts() -> dict[Reason, tuple[str, str]]:
    """Return each reason with its meaning and what to do, from the comment above it."""
    found: dict[Reason, tuple[str, str]] = {}
    comment: list[str] = []
    for line in (PACKAGE / "reasons.py").read_text(encoding="utf-8").splitlines():
        if line.startswith("    #: "):
            comment.append(line.removeprefix("    #: "))
        elif code := re.fullmatch(r'    ([A-Z_]+) = "\1"', line):
            meaning, _, to_do = " ".join(comment).partition(f" {_TO_DO}")
            found[Reason[code[1]]] = meaning, to_do
            comment = []
    return found


def table() -> str:
    """Return the table: the codes in the order of the enumeration."""
    lines = list(_HEAD)
    for reason, (meaning, to_do) in texts().items():
        ways = {(kind.retryable, kind.exit_code) for kind in raised().get(reason, ())}
        if len(ways) != 1 or not meaning or not to_do:
            raise ValueError(f"{reason} needs one way to end a task, a meaning and what to do: {ways}")
        ((is_retryable, exit_code),) = ways
        lines.append(f"| `{reason}` | {meaning} | {to_do} | {'yes' if is_retryable else 'no'} | {exit_code} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table into the page, or compare it."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    new = f"\n{table()}\n"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(before + BEGIN + new + END + after, encoding="utf-8")
        return 0
    if old == new:
        return 0
    print("docs/errors.md has other reasons than the code: run scripts/reason_table.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
