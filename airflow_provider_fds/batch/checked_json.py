"""Values exchanged with the Spark driver as JSON: a format number, and fields of the declared types.

Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP037

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, Dict, Tuple, Type, TypeVar, Union, get_args, get_origin, get_type_hints

#: Version of the JSON of specs, reports and commit metadata. Increased when a reader of the old version would misread
#: the new one.
SPEC_FORMAT = 1

_T = TypeVar("_T")


@dataclass(frozen=True)
class Rules:
    """How strictly a value is read.

    Attributes:
        least: The least integer that a field may hold; the greatest is 2^63 - 1, as in a Delta log.
        ignores_unknown: Whether fields that the class does not have are ignored: a newer version may have added them.
    """

    least: int = -1
    ignores_unknown: bool = False


_SPEC = Rules()


def from_json(cls: Type[_T], text: "str | bytes", what: str, rules: Rules = _SPEC) -> _T:
    """Create a value from the text that :func:`to_json` wrote.

    Args:
        cls: Class of the value, a dataclass.
        text: The text.
        what: The name of the value in messages.
        rules: How strictly it is read.

    Raises:
        ValueError: The text is not JSON, has another format, lacks a field, or has a field of another type or out of
            range.
    """
    try:
        return _decoded(cls, text, what, rules)
    except RecursionError as error:
        raise ValueError(f"{what} is nested too deeply") from error


def _decoded(cls: Type[_T], text: "str | bytes", what: str, rules: Rules) -> _T:
    try:
        raw: Dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is not a JSON object")  # noqa: TRY004 - a reader catches one error
    got = raw.pop("format", None)
    if type(got) is not int or got != SPEC_FORMAT:
        raise ValueError(
            f"{what} has format {str(got)[:100]}, but this version of FDS reads format {SPEC_FORMAT}: another version "
            "wrote it. Run the task with the version that planned the batch, or plan it again"
        )
    value: _T = _of_class(cls, raw, what, rules)
    return value


def _of_class(cls: Any, raw: Any, what: str, rules: Rules) -> Any:
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is not a JSON object")  # noqa: TRY004 - a reader catches one error
    kinds = _kinds(cls)
    found = {} if rules.ignores_unknown else dict(raw)
    for name, kind in kinds.items():
        if name in raw:
            found[name] = _of_kind(kind, raw[name], what, name, rules)
    try:
        return cls(**found)
    except TypeError as error:
        raise ValueError(f"{what} has missing or unknown fields ({error})") from error


def _of_kind(kind: Any, value: Any, what: str, name: str, rules: Rules) -> Any:
    """Return a field's value if it is of the kind, with objects as values of their class and lists as tuples."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Union:
        return None if value is None else _of_kind(args[0], value, what, name, rules)
    if is_dataclass(kind):
        return _of_class(kind, value, f"the {name} of {what}", rules)
    if origin is tuple and isinstance(value, list):
        return tuple(_of_kind(args[0], one, what, name, rules) for one in value)
    if origin is dict and isinstance(value, dict):
        return {key: _of_kind(args[1], one, what, name, rules) for key, one in value.items()}
    if kind is not Any and (origin is not None or not _is_of(value, kind, rules)):
        raise ValueError(f"{what} has the {name} {str(value)[:100]!r}; expected {_in_words(kind, rules)}")
    return value


def _is_of(value: Any, kind: type, rules: Rules) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, int) and rules.least <= value < 1 << 63
    if kind is float:
        return isinstance(value, (int, float)) and 0 <= value < float("inf")
    return isinstance(value, kind)


def _in_words(kind: Any, rules: Rules) -> str:
    numbers = {int: f"an integer from {rules.least} to 2^63 - 1", float: "a number, 0 or more"}
    words = {**numbers, str: "a string", bool: "true or false", tuple: "a list", dict: "an object"}
    return words.get(get_origin(kind) or kind, str(kind))


@lru_cache(maxsize=64)
def _kinds(cls: Any) -> Dict[str, Any]:
    """Return the type of each field."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def to_json(value: Any, leave_out: Tuple[str, ...] = ()) -> bytes:
    """Return a dataclass, or its fields, as JSON with its format, without the fields named in ``leave_out``."""
    given = value if isinstance(value, dict) else asdict(value)
    fields = {name: field for name, field in given.items() if name not in leave_out}
    return json.dumps({"format": SPEC_FORMAT, **fields}, sort_keys=True, separators=(",", ":")).encode()
