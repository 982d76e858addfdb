"""A predicate on columns in a small part of Spark's SQL, parsed strictly into a tree.

The part is: comparisons of a column with a literal, ``IN``, ``BETWEEN``, ``IS NULL``, ``AND``, ``OR``, ``NOT`` and
parentheses. Everything else is refused, not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airflow_provider_fds.source.filters.filter_column import COMPARISONS, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.source.filters.filter_column import AskedFilter, FilterColumn

#: Digits of a number that Spark can parse, and that its decimals can have.
MAX_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator literal``; the operator is one of ``COMPARISONS``."""

    column: str
    operator: str
    literal: Literal


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``, or ``IS NOT NULL``."""

    column: str
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT part``."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class AllOf:
    """Two or more parts joined by ``AND``."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Two or more parts joined by ``OR``."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Comparison | IsNull | Not | AllOf | AnyOf

_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<string>'(?:[^'\\]|'')*')
  | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?![0-9A-Za-z_.]))
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark><=|>=|<>|!=|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE | re.ASCII,
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "true", "false"})
_DEEPEST: Final = 50
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SUPPORTED: Final = (
    "A filter supports comparisons of a column with a literal (=, !=, <>, <, <=, >, >=), IN, BETWEEN, IS "
    "NULL, each with NOT, AND, OR and parentheses; literals are 'strings', numbers, true, false, DATE '…' and "
    "TIMESTAMP '…'"
)


def parse_predicate(text: str) -> Predicate:
    """Parse a predicate.

    Raises:
        ValueError: It is not supported; says what was expected, and where.

    Examples:
        >>> columns_of(parse_predicate("day >= DATE '2026-01-01' AND country IN ('DE', 'FR')"))
        ('day', 'country')
    """
    return _Parser(text).whole()


def columns_of(predicate: Predicate) -> tuple[str, ...]:
    """Return the columns that a predicate names, in its order and as it spells them, each once."""
    if isinstance(predicate, (Comparison, IsNull)):
        return (predicate.column,)
    parts = (predicate.part,) if isinstance(predicate, Not) else predicate.parts
    return tuple(dict.fromkeys(name for part in parts for name in columns_of(part)))


def conjuncts_of(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the parts that must all be true for a predicate to be true, none of which is an ``AND`` itself."""
    if not isinstance(predicate, AllOf):
        return (predicate,)
    return tuple(one for part in predicate.parts for one in conjuncts_of(part))


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Predicate:
        result = self._either()
        if self._kind != "end":
            raise self._refusal("AND, OR or the end")
        return result

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _value(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        value = self._value
        self._at += 1
        return value

    def _takes(self, kind: str, *values: str) -> str | None:
        return self._next() if self._kind == kind and self._value in values else None

    def _needs(self, kind: str, value: str) -> None:
        if self._takes(kind, value) is None:
            raise self._refusal(value.upper())

    def _refusal(self, expected: str) -> ValueError:
        kind, value, place = self._tokens[self._at]
        got = "the end" if kind == "end" else repr(value)
        return ValueError(f"at character {place + 1}: expected {expected}, got {got}. {_SUPPORTED}")

    def _either(self) -> Predicate:
        parts = [self._all()]
        while self._takes("keyword", "or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self) -> Predicate:
        parts = [self._negation()]
        while self._takes("keyword", "and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negation(self) -> Predicate:
        negations = 0
        while self._takes("keyword", "not"):
            negations += 1
        result = self._predicate()
        return Not(result) if negations % 2 else result

    def _predicate(self) -> Predicate:
        if self._takes("mark", "("):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self._refusal(f"at most {_DEEPEST} nested parentheses")
            inner = self._either()
            self._needs("mark", ")")
            self._depth -= 1
            return inner
        if self._kind != "column":
            literal = self._literal("a column, a literal, NOT or '('")
            operator = self._takes("mark", *COMPARISONS)
            if operator is None:
                raise self._refusal("a comparison")
            return Comparison(self._column(), _MIRRORED.get(operator, operator), literal)
        column = self._column()
        if (operator := self._takes("mark", *COMPARISONS)) is not None:
            return Comparison(column, operator, self._literal("a literal"))
        if self._takes("keyword", "is"):
            is_negated = self._takes("keyword", "not") is not None
            self._needs("keyword", "null")
            return IsNull(column, is_negated)
        is_negated = self._takes("keyword", "not") is not None
        if self._takes("keyword", "in"):
            result: Predicate = self._list(column)
        elif self._takes("keyword", "between"):
            low = self._literal("a literal")
            self._needs("keyword", "and")
            result = AllOf((Comparison(column, ">=", low), Comparison(column, "<=", self._literal("a literal"))))
        else:
            raise self._refusal("IN or BETWEEN" if is_negated else "a comparison, IN, BETWEEN or IS")
        return Not(result) if is_negated else result

    def _list(self, column: str) -> Predicate:
        self._needs("mark", "(")
        parts: list[Predicate] = [Comparison(column, "=", self._literal("a literal"))]
        while self._takes("mark", ","):
            parts.append(Comparison(column, "=", self._literal("a literal")))
        self._needs("mark", ")")
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _column(self) -> str:
        if self._kind != "column":
            raise self._refusal("a column")
        return self._next()

    def _literal(self, expected: str) -> Literal:
        kind, value, place = self._tokens[self._at]
        if kind == "string":
            return Literal("text", self._next())
        if kind == "number":
            return Literal("number", Decimal(self._next()))
        if (word := self._takes("keyword", "true", "false")) is not None:
            return Literal("boolean", word == "true")
        if kind in ("date", "timestamp"):
            self._at += 1
            try:
                return Literal.in_time(kind, value)
            except ValueError as error:
                raise ValueError(f"at character {place + 1}: {error}") from error
        raise self._refusal(expected)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Return kind, value and position of each token; the last one has kind ``end``."""
    found: list[tuple[str, str, int]] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            place += len(text[place:]) - len(text[place:].lstrip())
            raise ValueError(f"at character {place + 1}: {text[place : place + 10]!r} is not understood. {_SUPPORTED}")
        kind, raw = match.lastgroup, match[match.lastgroup]
        start, place = match.start(kind), match.end()
        if kind == "word":
            kind, raw = ("keyword", raw.lower()) if raw.lower() in _KEYWORDS else ("column", raw)
        elif kind == "quoted":
            kind, raw = "column", raw[1:-1].replace("``", "`")
        elif kind == "string":
            raw = raw[1:-1].replace("''", "'")
            if found and found[-1][0] == "column" and found[-1][1].lower() in ("date", "timestamp"):
                word = found.pop()
                kind, start = word[1].lower(), word[2]
        found.append((kind, raw, start))
    return [*found, ("end", "", len(text))]


@dataclass(frozen=True)
class FilterColumns:
    """The columns of a table, for one predicate."""

    known: Mapping[str, FilterColumn]
    asked: AskedFilter

    def find(self, name: str) -> FilterColumn:
        """Return the column of a name in any case. Raises ``ConfigurationError`` if there is none."""
        found = self.known.get(name.lower())
        if found is None:
            columns = ", ".join(column.name for column in self.known.values()) or "none"
            raise self.asked.refusal(
                f"names {name!r}, which is not a column of the table. Its columns are: {columns}. The where of a sink "
                "can use any expression, and also the columns that a batch adds."
            )
        return found

    def constant(self, predicate: Comparison) -> Any:
        """Return the literal of a comparison in its column's type. Raises ``ConfigurationError`` if it has none."""
        column = self.find(predicate.column)
        value = predicate.literal.value
        if isinstance(value, Decimal) and len(f"{abs(value):f}".replace(".", "")) > MAX_DIGITS:
            raise self.asked.refusal(
                f"compares {column.name!r} with {value}: a number can have at most {MAX_DIGITS} digits."
            )
        return column.constant(predicate.literal, self.asked)
