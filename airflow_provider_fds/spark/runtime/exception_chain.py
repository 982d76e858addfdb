"""An exception of Python, py4j, the JVM or a Spark Connect server as the chain of its causes.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, List, Optional

_CHAIN_DEPTH = 20


@dataclass(frozen=True)
class Cause:
    """One exception of a chain of causes: class name, and text without stack trace."""

    name: str
    text: str

    @property
    def condition(self) -> Optional[str]:
        """Spark's error condition, which precedes the text in brackets."""
        found = re.search(r"(?:^|\s)\[([A-Z][A-Z0-9]*_[A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]", self.text)
        return found.group(1) if found else None


def causes_of(error: BaseException) -> List[Cause]:
    """Return the exception and its causes, those of the JVM for one that comes from there; at most 20."""
    chain = [Cause(type(error).__name__, str(error))]
    java = java_exception(error)
    if java is not None:
        chain = []
        while java is not None and len(chain) < _CHAIN_DEPTH:
            chain.append(Cause(str(java.getClass().getName()), str(java.getMessage() or "")))
            java = java.getCause()
        return chain
    if type(error).__module__.startswith("pyspark.errors.exceptions.connect"):
        return _connect_chain(error)
    python = error.__cause__ or error.__context__
    while python is not None and len(chain) < _CHAIN_DEPTH:
        chain.append(Cause(type(python).__name__, str(python)))
        python = python.__cause__ or python.__context__
    return chain


def java_exception(error: BaseException) -> Any:
    """Return the Java throwable of a py4j or pyspark exception, or ``None`` for a Python one."""
    fields = vars(error)
    java = fields.get("java_exception")
    origin = fields.get("_origin") if java is None else None
    if isinstance(origin, BaseException):  # pyspark 3.5 keeps py4j's exception, 4 the throwable itself
        java = vars(origin).get("java_exception")
    elif origin is not None:
        java = origin
    return java


def first_line(text: str) -> str:
    """Return the text up to its stack trace or details, on one line."""
    lines = []
    for line in text.strip().splitlines():
        if re.match(r"\s+at \S+\(|Driver stacktrace|JVM stacktrace|Caused by:|== SQL|Traceback ", line):
            break
        if line.strip():
            lines.append(line.strip())
    return " ".join(lines[:6])


def _connect_chain(error: BaseException) -> List[Cause]:
    """Return the chain of an exception from a Spark Connect server: its causes are only in the stack trace."""
    message = str(getattr(error, "_message", None) or error)
    lines = str(getattr(error, "_stacktrace", None) or "").splitlines()
    name = lines[0] if lines else type(error).__name__
    texts: List[List[str]] = [[name, message]]
    is_message = False
    for line in lines[1:]:
        if line.startswith("Caused by: ") and len(texts) < _CHAIN_DEPTH:
            texts.append(list(line[len("Caused by: ") :].partition(": ")[::2]))
            is_message = True
        elif line.startswith("\tat "):
            is_message = False
        elif is_message:
            texts[-1][1] += "\n" + line
    return [Cause(*text) for text in texts]
