"""Print the page ``messages.md`` of the docs site: all error messages of FDS by reason code, from the code.

A value that is known only at run time is shown as ``…``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "airflow_provider_fds"

#: Root of the errors that people see, and the error of Spark's driver, which cannot import it.
_ROOT_ERROR: Final = "FdsError"
_DRIVER_ERROR: Final = "RefusalError"
#: Shorter texts are names and separators.
_LEAST: Final = 25
_HEAD: Final = """# All messages

All error messages of FDS, by [reason code](errors.md). `…` stands for a name, a number or a value. Search this page for
a few words of your message. [Troubleshooting](troubleshooting.md) explains the messages that need more than one step.
"""


@dataclass(frozen=True)
class Messages:
    """The messages of the package.

    Args:
        sources: The modules of the package by their paths.
    """

    sources: dict[Path, ast.Module]

    @cached_property
    def by_reason(self) -> dict[str, list[str]]:
        """The messages by reason code, each sorted by its first words; those of the driver come under ``""``."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for path, tree in self.sources.items():
            for reason, text in self._of_module(path, tree):
                found[reason].add(text)
        return {reason: sorted(texts, key=_sort_key) for reason, texts in found.items()}

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """The reason of each class of error, its own or that of its nearest base."""
        bases: dict[str, str] = {}
        own: dict[str, str] = {}
        for tree in self.sources.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and node.bases:
                    bases[node.name] = ast.unparse(node.bases[0])
                if isinstance(node, ast.ClassDef) and (reason := _reason_of(node)) is not None:
                    own[node.name] = reason
        found = {}
        for name in [*bases, _ROOT_ERROR]:
            line = [name]
            while line[-1] in bases:
                line.append(bases[line[-1]])
            if line[-1] == "Exception" and _ROOT_ERROR in line:
                found[name] = next(own[one] for one in line if one in own)
        return found

    def _of_module(self, path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = _last(node.func)
                if name == _DRIVER_ERROR:
                    reason = _last(node.args[0])
                    yield from (
                        (reason if reason in Reason.__members__ else "", text) for text in _texts(node.args[1:2])
                    )
                elif name in self._reasons:
                    given = [_last(one.value) for one in node.keywords if one.arg == "reason"]
                    reason = next((one for one in given if one in Reason.__members__), self._reasons[name])
                    yield from ((reason, text) for text in _texts(node.args))
                elif name in ("append", "insert") and ast.unparse(node.func).startswith("problems."):
                    yield from ((Reason.INVALID_OPTION, text) for text in _texts(node.args))
                elif "refusals" in ast.unparse(node.func) or (path.name == "refusals.py" and name == "refusal"):
                    yield from ((Reason.LEDGER_REFUSED, text) for text in _texts(node.args))
            elif isinstance(node, ast.FunctionDef) and node.name.endswith("_problems"):
                yield from ((Reason.INVALID_OPTION, text) for text in _sentences(node))


def read_messages(package: Path = PACKAGE) -> Messages:
    """Return the messages in the modules of the package."""
    paths = sorted(package.rglob("*.py"))
    return Messages({path: ast.parse(path.read_text(encoding="utf-8")) for path in paths})


def render(messages: Messages) -> str:
    """Return the page."""
    found = messages.by_reason
    titles = [(f"`{reason}`", found[reason]) for reason in Reason if reason in found]
    if "" in found:
        titles.append(("On Spark's driver", found[""]))
    parts = [_HEAD]
    for title, texts in titles:
        parts += [f"## {title}\n", "\n".join(f"- {_code(text)}" for text in texts) + "\n"]
    return "\n".join(parts)


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        text = _text(node).strip()
        if len(text.replace("…", "")) >= _LEAST:
            yield re.sub(r"\s+", " ", text)


def _text(node: ast.expr | ast.stmt) -> str:
    """Return the text of a literal, with ``…`` for what is known at run time only; of another expression, nothing."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) if isinstance(value, ast.Constant) else "…" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_text(left) or '…'}{_text(right) or '…'}"
        case ast.IfExp(body=body):
            return _text(body)
    return ""


def _sentences(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the sentences in a function that returns problems; its docstring is none of them."""
    for statement in function.body[1:]:
        inner = {id(part) for one in ast.walk(statement) if isinstance(one, ast.JoinedStr) for part in one.values}
        for node in ast.walk(statement):
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in inner:
                yield from (text for text in _texts([node]) if text.endswith("."))


def _reason_of(of: ast.ClassDef) -> str | None:
    """Return the reason that the body of a class of errors sets, if it does."""
    for line in of.body:
        if not isinstance(line, (ast.Assign, ast.AnnAssign)) or line.value is None:
            continue
        if "reason" in {ast.unparse(target) for target in _targets(line)}:
            return _last(line.value)
    return None


def _targets(line: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return line.targets if isinstance(line, ast.Assign) else [line.target]


def _last(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    return ast.unparse(node).rpartition(".")[2]


def _code(text: str) -> str:
    """Return the text as code of Markdown, with enough backticks around it."""
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _sort_key(text: str) -> tuple[str, str]:
    return re.sub(r"^[^A-Za-z]+", "", text).lower(), text


if __name__ == "__main__":
    print(render(read_messages()), end="")
