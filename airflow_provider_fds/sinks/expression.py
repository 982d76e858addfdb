"""The check of a sink's predicates: only expressions of columns. Standard library only, Python 3.9 syntax.

A predicate is often a template, filled in from a run's configuration. In Spark an expression can call any static Java
method (``reflect``) and read any table (a subquery) with the rights of the driver, so neither is accepted unless the
sink has ``unsafe_sql=True``. Strings, names and keywords are recognised as in Spark's lexer; nothing else is parsed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Functions that call Java. ``identifier('…')`` names a function by a string.
_CALLS = frozenset({"reflect", "java_method", "try_reflect", "identifier"})
#: Words that begin a query; all but ``select`` are also allowed as column names.
_QUERY = frozenset({"from", "map", "reduce", "table", "values", "with"})
#: Words that follow a column, not the beginning of a query.
_AFTER_COLUMN = frozenset(
    {
        "and", "as", "between", "collate", "div", "escape", "ilike", "in", "is", "like", "not", "or", "regexp",
        "rlike",
    }
)  # fmt: skip

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<refused>/\* | -- | \$)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>\w+)
    | (?P<pipe>\|>)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str


def expression_problem(text: str) -> str | None:
    """Return a description of what in a SQL expression goes beyond columns; ``None`` if nothing does."""
    tokens = []
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        if kind == "refused":
            # the end of a comment or dollar quote is not determined here: either may hide a quote
            return f"a comment or a dollar quote ({found.group()})"
        if kind == "other" and found.group() in "'\"`":
            return f"an unterminated quote ({found.group()})"
        if kind == "quoted" or found.group().startswith('"'):
            # under spark.sql.ansi.doubleQuotedIdentifiers, double quotes enclose a name
            tokens.append(_Token("name", found.group()[1:-1].replace("``", "`").lower()))
        elif kind != "space":
            tokens.append(_Token(kind, found.group().lower()))
    none = _Token("end", "")
    for before, token, after in zip([none, *tokens], tokens, [*tokens[1:], none]):  # noqa: B905  # Python 3.9
        if token.kind in ("word", "name") and token.text in _CALLS and after.text == "(":
            return f"the function {token.text}"
        if token.kind == "pipe" or (token.kind == "word" and token.text == "select"):
            return "a subquery"
        is_first = token.kind == "word" and token.text in _QUERY and before.text == "("
        continues = after.kind == "name" or after.text == "(" or after.kind == "word"
        if is_first and continues and after.text not in _AFTER_COLUMN:
            return "a subquery"
    return None
