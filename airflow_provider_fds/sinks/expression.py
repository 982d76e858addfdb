"""The check of a sink's predicates: only expressions of columns; and what is true of each row that one matches.

A predicate is often a template, filled in from a run's configuration. In Spark an expression can call any static Java
method (``reflect``) and read any table (a subquery) with the rights of the driver, so neither is accepted unless the
sink has ``unsafe_sql=True``. Strings, names and keywords are recognised as in Spark's lexer; nothing else is parsed.
Standard library only, Python 3.9 syntax.
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

#: Functions whose result differs between two evaluations of one row, or depends on who evaluates it and when.
_UNSTABLE = frozenset(
    {
        "curdate", "current_catalog", "current_database", "current_date", "current_schema", "current_time",
        "current_timestamp", "current_timezone", "current_user", "input_file_block_length", "input_file_block_start",
        "input_file_name", "localtimestamp", "monotonically_increasing_id", "now", "rand", "randn", "random", "randstr",
        "session_user", "shuffle", "spark_partition_id", "uniform", "user", "uuid",
    }
)  # fmt: skip
#: Those of them that Spark also calls without parentheses.
_BARE = frozenset({"current_date", "current_time", "current_timestamp", "current_user", "localtimestamp"})
#: Functions of many rows; Spark has more, which it refuses before it reads anything.
_OF_MANY_ROWS = frozenset(
    {
        "any_value", "avg", "bool_and", "bool_or", "collect_list", "collect_set", "count", "count_if", "first", "last",
        "lag", "lead", "max", "mean", "median", "min", "rank", "dense_rank", "row_number", "stddev", "sum", "variance",
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


#: Strings that Spark reads as a time of now.
_TIMES = frozenset({"now", "today", "tomorrow", "yesterday"})

#: A string that is the same text under all settings of the session.
_PLAIN = re.compile(r"'[^'\\$]*'")


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


def row_test_problem(text: str) -> str | None:
    """Return what in a SQL expression keeps it from being a test of one row that always has the same result.

    ``None`` if nothing is found; Spark knows more functions than this does.
    """
    if (problem := expression_problem(text)) is not None:
        return problem
    tokens = [(str(found.lastgroup), found.group().lower()) for found in _TOKEN.finditer(text)]
    tokens = [token for token in tokens if token[0] != "space"]
    depth = 0
    for (kind, word), (_, after) in zip(tokens, [*tokens[1:], ("end", "")]):  # noqa: B905  # Python 3.9
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth < 0 or word == ";":
            return "a ')' without its '('" if depth < 0 else "a ';'"
        name = word.strip("`") if kind in ("word", "quoted") else ""
        if (name in _UNSTABLE and after == "(") or (kind == "word" and name in _BARE):
            return f"{name}, whose result depends on when and where it is evaluated"
        if after == "(" and (name in _OF_MANY_ROWS or name == "over"):
            return "a window" if name == "over" else f"{name}, a function of many rows"
        if name in ("date", "timestamp", "timestamp_ltz", "timestamp_ntz") and after.strip("'\"") in _TIMES:
            return f"{name} {after}, whose result depends on when it is evaluated"
    return "a '(' without its ')'" if depth else None


def equal_columns(predicate: str) -> dict[str, str | int]:
    """Return the columns, in lower case, that equal a string or a whole number in each row that a predicate matches.

    Only ``column = literal`` counts, and only if nothing but ``AND`` joins it with the rest.
    """
    found: dict[str, str | int] = {}
    for part in _conjuncts(predicate):
        if len(part) != 3 or part[0].kind not in ("word", "name") or part[1].text != "=":  # noqa: PLR2004
            continue
        kind, text = part[2]
        if kind == "word" and text.isdecimal():
            found[part[0].text.lower()] = int(text)
        elif kind == "text" and _PLAIN.fullmatch(text):
            found[part[0].text.lower()] = text[1:-1]
    return found


def column_range(predicate: str, column: str) -> tuple[int, int] | None:
    """Return the bounds, both inclusive, of a column in each row that a predicate matches: ``column BETWEEN 1 AND 2``.

    ``None`` if the predicate does not say so.
    """
    for part in _conjuncts(predicate):
        name, *between = [token.text.lower() for token in part]
        if name == column and len(between) == 4 and (between[0], between[2]) == ("between", "and"):  # noqa: PLR2004
            low, high = between[1], between[3]
            if low.isdecimal() and high.isdecimal():
                return int(low), int(high)
    return None


def _conjuncts(predicate: str) -> list[list[_Token]]:
    """Return the tokens of each part of a predicate that must be true; nothing if that is not certain."""
    parts: list[list[_Token]] = [[]]
    depth, is_between = 0, False
    for found in _TOKEN.finditer(predicate):
        kind, text = str(found.lastgroup), found.group()
        word = text.lower() if kind == "word" else ""
        if kind in ("refused", "raw", "pipe") or text in ("'", '"', "`") or (depth == 0 and word in ("or", "case")):
            return []
        if kind == "space":
            continue
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth == 0 and word == "and" and not is_between:
            parts.append([])
            continue
        if depth == 0 and word in ("between", "and"):
            is_between = word == "between"
        parts[-1].append(_Token("name", text[1:-1].replace("``", "`")) if kind == "quoted" else _Token(kind, text))
    return [part for part in parts if part]
