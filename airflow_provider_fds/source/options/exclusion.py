"""``exclude_regex``: expressions that mean the same to Java, which defines the option, and to Python."""

from __future__ import annotations

import re
import warnings
from typing import Final

#: Syntax that one of the engines interprets differently or not at all; searched with escapes blanked out.
_DIFFERENT: Final = (
    (
        re.compile(r"\(\?(?!:|=|!|<=|<!|>|[ims]*(-[ims]+)?[:)])"),
        "groups other than (…), (?:…), (?>…), (?=…), (?!…), (?<=…), (?<!…) and flags other than i, m and s",
    ),
    (re.compile(r"&&"), "intersections of classes (&&)"),
    (re.compile(r"\[\^?\]"), "a class that begins with ']'; write \\]"),
    (re.compile(r"\[[^\]]*\["), "a '[' within a class; write \\["),
    (re.compile(r"\{,"), "a quantifier without a lower bound; write {0,n}"),
)

#: Escapes with a letter that both engines interpret alike for the characters of a log path.
_SAME_ESCAPES: Final = frozenset("dDwWsSbBAtnrfxua")

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)

_SUPPORTED: Final = (
    "FDS supports what java.util.regex and Python's re interpret in the same way: characters, ., classes, \\d \\w \\s "
    "\\b and their opposites, ^ $, groups, alternatives, lookaround, back references by number, quantifiers, leading "
    "flags (?ims)."
)


def compile_exclusion(text: str) -> re.Pattern[str]:
    r"""Compile the expression of ``exclude_regex``.

    It is searched for (not matched as a whole) in the path as the log has it: relative or absolute, percent-encoded.
    ``\d``, ``\w``, ``\s`` and case-insensitivity mean ASCII, as in Java.

    Raises:
        ValueError: It is not a regular expression, or Java and Python interpret it differently; says why and where.
    """
    for match in _ESCAPE.finditer(text):
        char = match[1]
        if char == "0" or (char.isalpha() and char not in _SAME_ESCAPES):
            raise ValueError(f"\\{char} does not mean the same in Java and in Python. {_SUPPORTED}")
    bare = _ESCAPE.sub("__", text)
    for pattern, what in _DIFFERENT:
        if pattern.search(bare):
            raise ValueError(f"Java and Python do not both support {what}. {_SUPPORTED}")
    try:
        with warnings.catch_warnings():
            # a FutureWarning marks syntax that a later Python will interpret as Java does today
            warnings.simplefilter("error")
            return re.compile(text, re.ASCII)
    except RecursionError:
        raise ValueError("it is nested too deeply. Use fewer nested groups") from None
    except (re.error, FutureWarning, OverflowError) as error:
        raise ValueError(f"invalid regular expression: {error}. {_SUPPORTED}") from error
