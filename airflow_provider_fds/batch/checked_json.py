"""Values exchanged with the Spark driver as JSON: a format number, and fields of the declared types.

Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP037

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, Dict, Tuple, Type, TypeVar

#: Version of the JSON of specs, reports and commit metadata. Increased when a reader of the old version would misread
#: the new one.
SPEC_FORMAT = 1

_T = TypeVar("_T")


def from_json(cls: Type[_T], text: "str | bytes", what: str) -> _T:
    """Create a value from the text that :func:`to_json` wrote.

    Args:
        cls: Class of the value, a dataclass.
        text: The text.
        what: The name of the value in messages.

    Raises:
        ValueError: The text is not JSON, has another format, or a field of another type.
    """
    try:
        raw: Dict[str, Any] = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{what} is nested too deeply") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is not a JSON object")  # noqa: TRY004 - a reader catches one error
    got = raw.pop("format", None)
    if got != SPEC_FORMAT:
        raise ValueError(
            f"{what} has format {got!r}, but this version of FDS reads format {SPEC_FORMAT}: another version "
            "wrote it. Run the task with the version that planned the batch, or plan it again"
        )
    return checked(cls, raw, what)


def checked(cls: Type[_T], raw: Any, what: str) -> _T:
    """Create a value from JSON if the fields have their types; integers are versions and counts, -1 to 2^63 - 1."""
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is not a JSON object")  # noqa: TRY004 - a reader catches one error
    for spec in fields(cls):  # type: ignore[arg-type]
        if spec.name in raw and not _is_of(raw[spec.name], str(spec.type)):
            raise ValueError(f"{what} has the {spec.name} {str(raw[spec.name])[:100]!r}; expected {spec.type}")
    try:
        return cls(**raw)
    except TypeError as error:
        raise ValueError(f"{what} has missing or unknown fields ({error})") from error


def _is_of(value: Any, kind: str) -> bool:
    """Return whether a JSON value has the type in a field's annotation; values in tuples are checked later."""
    if kind.startswith("Optional["):
        return value is None or _is_of(value, kind[len("Optional[") : -1])
    if kind.startswith("Tuple["):
        return isinstance(value, (list, tuple)) and (
            kind != "Tuple[str, ...]" or all(isinstance(one, str) for one in value)
        )
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 1 << 63
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
    if kind.startswith("Dict["):
        inner = kind[len("Dict[str, ") : -1]
        return isinstance(value, dict) and (inner == "Any" or all(_is_of(one, inner) for one in value.values()))
    return isinstance(value, {"str": str, "bool": bool}.get(kind, dict))


def to_json(value: Any, leave_out: Tuple[str, ...] = ()) -> bytes:
    """Return a dataclass as JSON with its format, without the fields named in ``leave_out``."""
    fields = {name: field for name, field in asdict(value).items() if name not in leave_out}
    return json.dumps({"format": SPEC_FORMAT, **fields}, sort_keys=True, separators=(",", ":")).encode()


__all__ = [
    "SPEC_FORMAT",
    "checked",
    "from_json",
    "to_json",
]
