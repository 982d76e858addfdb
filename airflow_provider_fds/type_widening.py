"""Which type of a column holds every value of another one (Delta protocol, "Type Widening").

Types are those of Delta's schema JSON. Standard library only, Python 3.9 syntax: the driver asks it too.
"""

from __future__ import annotations

import re
from typing import Any

_INTEGERS = ("byte", "short", "integer", "long")
#: Digits before the decimal point that a decimal needs to hold every value of an integer type.
_INTEGER_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def is_wider(old: Any, new: Any) -> bool:
    """Return whether every value of ``old`` is a value of ``new``, by the protocol's list of type changes."""
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return False
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if (old, new) in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    if new == "double":
        return old in ("byte", "short", "integer")
    wide = _DECIMAL.fullmatch(new)
    if wide is None:
        return False
    precision, scale = int(wide[1]), int(wide[2])
    if old in _INTEGERS:
        return scale >= 0 and precision - scale >= _INTEGER_DIGITS[old]
    narrow = _DECIMAL.fullmatch(old)
    if narrow is None:
        return False
    return scale >= int(narrow[2]) and precision - scale >= int(narrow[1]) - int(narrow[2])
