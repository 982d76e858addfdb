"""``partition_filter``: a predicate on partition columns, parsed strictly, and evaluated by SQL's three-valued logic.

It supports a small part of Spark's SQL, with the same meaning: comparisons of a column with a literal, ``IN``,
``BETWEEN``, ``IS NULL``, ``AND``, ``OR``, ``NOT`` and parentheses. Everything else is refused, not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.partition_column import COMPARISONS, Literal, partition_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.source.partition_column import PartitionColumn

    #: ``partitionValues`` of a file -> whether its rows satisfy the predicate; ``None``: SQL's unknown.
    Truth: TypeAlias = Callable[[Mapping[str, str | None]], bool | None]
    Bind: TypeAlias = Callable[["_Columns"], Truth]
    #: Returns for ``partitionValues`` whether the file is read.
    Keeps: TypeAlias = Callable[[Mapping[str, str | None] | None], bool]

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
    "A filter supports comparisons of a partition column with a literal (=, !=, <>, <, <=, >, >=), IN, BETWEEN, IS "
    "NULL, each with NOT, AND, OR and parentheses; literals are 'strings', numbers, true, false, DATE '…' and "
    "TIMESTAMP '…'"
)


class PartitionFilter:
    """A parsed predicate that is not yet bound to a table.

    Args:
        text: The predicate.

    Raises:
        ValueError: It is not supported; says what was expected, and where.

    Example:
        >>> PartitionFilter("day >= DATE '2026-01-01' AND country IN ('DE', 'FR')").columns
        ('day', 'country')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parser = _Parser(text)
        self._bind = parser.whole()
        self.columns = tuple(dict.fromkeys(parser.columns))

    def bind(self, metadata: Metadata, *, table: str) -> Keeps:
        """Return the function that decides by a file's ``partitionValues`` whether the file is read.

        Values are compared by the column's type in ``metadata``. A missing value is NULL. A file for which the
        predicate is unknown (NULL) is not read, as in a ``WHERE``.

        Raises:
            ConfigurationError: A column does not exist, is not a partition column or has a type that cannot be
                compared; or a literal has another type than its column.
            StoppedError: When called: a logged value cannot be parsed as the column's type.
        """
        truth = self._bind(_Columns(partition_columns(metadata), self.text, table))
        return lambda values: truth(values or {}) is True


@dataclass(frozen=True)
class _Columns:
    known: Mapping[str, PartitionColumn]
    text: str
    table: str

    def find(self, name: str) -> PartitionColumn:
        found = self.known.get(name.lower())
        if found is not None and found.is_partition:
            return found
        partitions = ", ".join(column.name for column in self.known.values() if column.is_partition) or "none"
        what = "is not a column of the table" if found is None else "is not a partition column"
        raise ConfigurationError(
            f"{self.table}: partition_filter {self.text!r} names {name!r}, which {what}. The partition columns "
            f"are: {partitions}. Filter by other columns in the job that reads the batch.",
            table=self.table,
            reason=Reason.PARTITION_FILTER_INVALID,
        )


class _Parser:
    """Recursive descent over the tokens; the result binds the predicate to columns."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self.columns: list[str] = []

    def whole(self) -> Bind:
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

    def _either(self) -> Bind:
        parts = [self._all()]
        while self._takes("keyword", "or"):
            parts.append(self._all())
        return _any_of(parts)

    def _all(self) -> Bind:
        parts = [self._negation()]
        while self._takes("keyword", "and"):
            parts.append(self._negation())
        return _all_of(parts)

    def _negation(self) -> Bind:
        negations = 0
        while self._takes("keyword", "not"):
            negations += 1
        result = self._predicate()
        return _not(result) if negations % 2 else result

    def _predicate(self) -> Bind:
        if self._takes("mark", "("):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self._refusal(f"at most {_DEEPEST} nested parentheses")
            result = self._either()
            self._needs("mark", ")")
            self._depth -= 1
            return result
        if self._kind != "column":
            literal = self._literal("a column, a literal, NOT or '('")
            operator = self._takes("mark", *COMPARISONS)
            if operator is None:
                raise self._refusal("a comparison")
            return _compare(self._column(), _MIRRORED.get(operator, operator), literal)
        column = self._column()
        if (operator := self._takes("mark", *COMPARISONS)) is not None:
            return _compare(column, operator, self._literal("a literal"))
        if self._takes("keyword", "is"):
            is_negated = self._takes("keyword", "not") is not None
            self._needs("keyword", "null")
            return _is_null(column, is_negated=is_negated)
        is_negated = self._takes("keyword", "not") is not None
        if self._takes("keyword", "in"):
            result = self._list(column)
        elif self._takes("keyword", "between"):
            low = self._literal("a literal")
            self._needs("keyword", "and")
            result = _all_of([_compare(column, ">=", low), _compare(column, "<=", self._literal("a literal"))])
        else:
            raise self._refusal("IN or BETWEEN" if is_negated else "a comparison, IN, BETWEEN or IS")
        return _not(result) if is_negated else result

    def _list(self, column: str) -> Bind:
        self._needs("mark", "(")
        parts = [_compare(column, "=", self._literal("a literal"))]
        while self._takes("mark", ","):
            parts.append(_compare(column, "=", self._literal("a literal")))
        self._needs("mark", ")")
        return _any_of(parts)

    def _column(self) -> str:
        if self._kind != "column":
            raise self._refusal("a column")
        self.columns.append(self._value)
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


def _compare(name: str, operator: str, literal: Literal) -> Bind:
    def bind(columns: _Columns) -> Truth:
        column = columns.find(name)
        constant = column.constant(literal, text=columns.text, table=columns.table)
        key, read, compare = column.key, column.reader(table=columns.table), COMPARISONS[operator]

        def truth(values: Mapping[str, str | None]) -> bool | None:
            raw = values.get(key)
            # an empty string is NULL for every type (protocol, "Partition Value Serialization")
            return compare(read(raw), constant) if raw else None

        return truth

    return bind


def _is_null(name: str, *, is_negated: bool) -> Bind:
    def bind(columns: _Columns) -> Truth:
        key = columns.find(name).key
        return lambda values: bool(values.get(key)) is is_negated

    return bind


def _not(part: Bind) -> Bind:
    def bind(columns: _Columns) -> Truth:
        inner = part(columns)

        def truth(values: Mapping[str, str | None]) -> bool | None:
            found = inner(values)
            return None if found is None else not found

        return truth

    return bind


def _all_of(parts: list[Bind]) -> Bind:
    return parts[0] if len(parts) == 1 else _joined(parts, decisive=False)


def _any_of(parts: list[Bind]) -> Bind:
    return parts[0] if len(parts) == 1 else _joined(parts, decisive=True)


def _joined(parts: list[Bind], *, decisive: bool) -> Bind:
    """Combine with OR (true decides) or AND (false decides); otherwise one unknown makes the whole unknown."""

    def bind(columns: _Columns) -> Truth:
        inner = [part(columns) for part in parts]

        def truth(values: Mapping[str, str | None]) -> bool | None:
            result: Any = not decisive
            for part in inner:
                found = part(values)
                if found is decisive:
                    return decisive
                if found is None:
                    result = None
            return result  # type: ignore[no-any-return]

        return truth

    return bind
