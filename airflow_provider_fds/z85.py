"""Z85 (ZeroMQ RFC 32), and the files of deletion vectors, whose names the log has in it.

Standard library, Python 3.9 syntax: it runs on the driver too.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGIT: Final = {char: value for value, char in enumerate(_Z85)}
_UUID_CHARS: Final = 20


def vector_file(path_or_inline: str) -> tuple[str, str]:
    """Return folder and name of the file of a deletion vector of storage type ``u`` (protocol, "Deletion Vectors").

    Args:
        path_or_inline: ``pathOrInlineDv`` of the vector: the folder relative to the table, then the encoded UUID.

    Raises:
        ValueError: It does not end with a Z85-encoded UUID.

    >>> vector_file("ab^-aqEH.-t@S}K{vb[*k^")
    ('ab', 'deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin')
    """
    folder, name = path_or_inline[:-_UUID_CHARS], path_or_inline[-_UUID_CHARS:]
    return folder, f"deletion_vector_{UUID(bytes=decode_z85(name))}.bin"


def decode_z85(text: str) -> bytes:
    """Decode five characters to four bytes each. Raises ``ValueError`` if ``text`` is not Z85."""
    if len(text) % 5 or not set(text) <= _DIGIT.keys():
        raise ValueError(f"{text!r} is not Z85: expected groups of five characters of its alphabet")
    out = bytearray()
    for start in range(0, len(text), 5):
        value = 0
        for char in text[start : start + 5]:
            value = value * 85 + _DIGIT[char]
        if value >> 32:
            raise ValueError(f"{text!r} is not Z85: the group at {start} does not fit four bytes")
        out += struct.pack(">I", value)
    return bytes(out)


def encode_z85(data: bytes) -> str:
    """Encode, padded with zeros to whole groups of four bytes, as Delta does with inline vectors."""
    out: list[str] = []
    for (group,) in struct.iter_unpack(">I", data + bytes(-len(data) % 4)):
        value, chars = group, []
        for _ in range(5):
            value, digit = divmod(value, 85)
            chars.append(_Z85[digit])
        out.extend(reversed(chars))
    return "".join(out)
