"""Damage to bytes, JSON and command lines, drawn by a seeded generator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

#: Replacements for a JSON value.
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 1.5, -0.0, 2**31, 2**40, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30),
    *("", "x", "\x00", "é", "\U0001f600", "../..", "/", "file:///dev/zero", "%", "%zz", "9" * 5000, "[" * 2000),
    *([], {}, [None], {"": None}, [[[[]]]], {"a": {"a": {"a": {}}}}),
]
_RAW = [
    b"",
    b"\x00",
    b"\xff",
    b"\xff\xfe",
    b"\n",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b"\\ud800",
    b"1e400",
    b"-",
    b"null",
]
_NESTED = 100_000


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` damaged in one to three places."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not damaged:
            return b"\xff"
        at = rng.randrange(len(damaged))
        match rng.randrange(8):
            case 0 | 1 | 2:
                damaged[at] ^= 1 << rng.randrange(8)
            case 3:
                damaged[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 4:
                damaged[at : at + rng.randrange(1, 40)] = b""
            case 5:
                damaged[at:at] = rng.choice(_RAW)
            case 6:
                damaged[at:at] = damaged[at : at + rng.randrange(1, 400)]
            case _:
                damaged = damaged[:at]
    return bytes(damaged)


def of_footer(data: bytes, rng: random.Random) -> bytes:
    """Return a Parquet file with a damaged footer."""
    start = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    damaged = bytearray(data)
    at = rng.randrange(start, len(data))
    damaged[at] = damaged[at] ^ (1 << rng.randrange(8)) if rng.random() < 0.7 else rng.randrange(256)
    return bytes(damaged)


def of_json(data: bytes, rng: random.Random) -> bytes:
    """Return lines of JSON with a value replaced, a key removed, or a line repeated, moved, removed or nested."""
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    if len(lines) > 1 and rng.random() < 0.15:
        match rng.randrange(3):
            case 0:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 1:
                lines.append(lines.pop(at))
            case _:
                del lines[at]
        return b"\n".join(lines) + b"\n"
    if rng.random() < 0.01:
        lines[at] = lines[at][:-1] + b',"x":' + b"[" * _NESTED + b"]" * _NESTED + b"}"
        return b"\n".join(lines) + b"\n"
    value = json.loads(lines[at])
    _damage(value, rng)
    lines[at] = json.dumps(value, separators=(",", ":"), ensure_ascii=rng.random() < 0.5).encode()
    return b"\n".join(lines) + b"\n"


def _damage(value: Any, rng: random.Random) -> None:
    """Change one value inside ``value``, or inside JSON that it contains as text."""
    places = list(_places(value))
    if not places:
        return
    holder, key = rng.choice(places)
    inner = holder[key]
    if isinstance(inner, str) and inner[:1] in ("{", "[") and rng.random() < 0.7:
        try:
            parsed = json.loads(inner)
        except ValueError:
            parsed = None
        if parsed is not None:
            _damage(parsed, rng)
            holder[key] = json.dumps(parsed)
            return
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(inner, str):
            holder[key] = of_bytes(inner.encode(), rng).decode(errors="replace")
        case 2 if isinstance(inner, int) and not isinstance(inner, bool):
            holder[key] = inner + rng.choice((-1, 1, -(10**6), 10**6, 2**31, -(2**31), 2**40))
        case _:
            holder[key] = rng.choice(VALUES)


def _places(value: Any) -> Any:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield value, key
        yield from _places(item)


def of_text(data: bytes, rng: random.Random) -> bytes:
    """Damage the bytes or the values of JSON."""
    return of_json(data, rng) if rng.random() < 0.6 else of_bytes(data, rng)


def of_parquet(data: bytes, rng: random.Random) -> bytes:
    """Damage a Parquet file anywhere, or its footer."""
    return of_footer(data, rng) if rng.random() < 0.6 else of_bytes(data, rng)


def of_argument(text: str, rng: random.Random) -> str:
    """Return a different text for an argument."""
    if rng.random() < 0.5:
        return str(rng.choice([v for v in VALUES if isinstance(v, int | float | str) or v is None])).replace(
            "\x00", "0"
        )
    return of_bytes(text.encode(), rng).decode(errors="replace").replace("\x00", "0")
