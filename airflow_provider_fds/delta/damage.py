"""The exceptions that damaged text and damaged files raise when they are read, whatever library reads them."""

from __future__ import annotations

from typing import Final

import msgspec

#: All that decoding a value, or using a value of the wrong type or size, raises. The decoders' own errors for JSON and
#: Parquet derive from these.
DAMAGE: Final = (
    ValueError,
    # a ValueError itself since msgspec 0.21
    msgspec.MsgspecError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    NotImplementedError,
)

#: The largest number that a log may hold: Delta, Parquet and Arrow store signed 64-bit integers.
MAX_INT64: Final = 2**63 - 1

_SHOWN: Final = 300


def describe(error: BaseException) -> str:
    """Return on one line what is wrong, for a message.

    >>> describe(KeyError("fields"))
    "KeyError: 'fields'"
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(error).split())
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    # the decoders' own messages are sentences; those of Python are not
    is_sentence = isinstance(error, (ValueError, msgspec.MsgspecError, OSError)) and text
    return text if is_sentence else f"{type(error).__name__}: {text}"
