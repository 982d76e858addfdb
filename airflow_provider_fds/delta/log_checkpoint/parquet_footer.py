"""The row groups of a Parquet file, from its footer (Parquet format, ``FileMetaData`` in Thrift's compact protocol).

pyarrow can list them too, but it aborts the process if the metadata of a column is damaged, because ``column()`` of a
row group lets a C++ exception escape. Therefore the few numbers that are needed are read here, from the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_VARINTS: Final = frozenset({_I16, _I32, _I64})
_LONG_LIST: Final = 15
_MAX_VARINT_BITS: Final = 63
_DOUBLE_BYTES: Final = 8


class RowGroup(NamedTuple):
    """A row group: its number of rows, and the number of nulls by column (``add.path``), if the footer has it."""

    num_rows: int
    null_counts: dict[str, int]


def row_groups(footer: bytes) -> list[RowGroup]:
    """Return the row groups that ``footer`` lists, in order.

    Raises:
        ValueError: It is damaged.
    """
    reader = _Reader(footer)
    groups: list[RowGroup] = []
    try:
        for field, kind in reader.fields():
            if (field, kind) == (4, _LIST):
                groups += reader.structs(_row_group)
            else:
                reader.skip(kind)
    except (IndexError, RecursionError) as error:
        raise ValueError("the footer is damaged") from error
    return groups


def _row_group(reader: _Reader) -> RowGroup:
    num_rows = -1
    columns: list[tuple[str, int | None]] = []
    for field, kind in reader.fields():
        if (field, kind) == (1, _LIST):
            columns = reader.structs(_column_chunk)
        elif (field, kind) == (3, _I64):
            num_rows = reader.integer()
        else:
            reader.skip(kind)
    if num_rows < 0:
        raise ValueError("the footer is damaged: a row group has no row count")
    return RowGroup(num_rows, {path: nulls for path, nulls in columns if nulls is not None})


def _column_chunk(reader: _Reader) -> tuple[str, int | None]:
    found: tuple[str, int | None] | None = None
    for field, kind in reader.fields():
        if (field, kind) == (3, _STRUCT):
            found = _column_metadata(reader)
        else:
            reader.skip(kind)
    if found is None:
        raise ValueError("the footer is damaged: a column has no metadata")
    return found


def _column_metadata(reader: _Reader) -> tuple[str, int | None]:
    path = ""
    nulls: int | None = None
    for field, kind in reader.fields():
        if (field, kind) == (3, _LIST):
            path = ".".join(reader.strings())
        elif (field, kind) == (12, _STRUCT):
            nulls = _null_count(reader)
        else:
            reader.skip(kind)
    return path, nulls


def _null_count(reader: _Reader) -> int | None:
    nulls: int | None = None
    for field, kind in reader.fields():
        if (field, kind) == (3, _I64):
            nulls = reader.integer()
        else:
            reader.skip(kind)
    return nulls


class _Reader:
    """Reads a value of the compact protocol from front to back; ``IndexError`` at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; the value must be read before the next field."""
        number = 0
        while True:
            head = self._data[self._at]
            self._at += 1
            if not head:
                return
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 15

    def integer(self) -> int:
        """Read a signed integer."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def structs(self, read: Callable[[_Reader], Any]) -> list[Any]:
        """Read a list of structs."""
        count, kind = self._list()
        if kind != _STRUCT and count:
            raise ValueError("the footer is damaged: a list has an unexpected element type")
        return [read(self) for _ in range(count)]

    def strings(self) -> list[str]:
        """Read a list of strings."""
        count, kind = self._list()
        if kind != _BINARY and count:
            raise ValueError("the footer is damaged: a list has an unexpected element type")
        return [self._binary().decode() for _ in range(count)]

    def skip(self, kind: int) -> None:
        """Skip a value."""
        if kind in _VARINTS:
            self._varint()
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (_LIST, _SET):
            count, inner = self._list()
            for _ in range(count):
                # a boolean takes a byte here, but none as a field
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner)
        elif kind == _BYTE:
            self._pass(1)
        elif kind == _DOUBLE:
            self._pass(_DOUBLE_BYTES)
        elif kind not in (_TRUE, _FALSE):
            # maps do not occur in a footer
            raise ValueError(f"the footer is damaged: it has a value of type {kind}")

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the bit that says that more follows
                return value
            shift += 7
            if shift > _MAX_VARINT_BITS:
                raise ValueError("the footer is damaged: it has a number longer than 64 bits")

    def _list(self) -> tuple[int, int]:
        head = self._data[self._at]
        self._at += 1
        count = head >> 4
        return (self._varint() if count == _LONG_LIST else count), head & 15

    def _binary(self) -> bytes:
        length = self._varint()
        start = self._at
        self._pass(length)
        return self._data[start : start + length]

    def _pass(self, length: int) -> None:
        self._at += length
        if self._at > len(self._data):
            raise IndexError(self._at)
