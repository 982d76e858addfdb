"""``add`` actions as Arrow rows, in one layout for all checkpoint writers, and their conversion back to values.

Checkpoints differ by writer: fields may be missing, strings may be large or dictionary-encoded, statistics may exist as
JSON, as a struct, or both (protocol, "Checkpoint Schema"). Rows of this module have the requested columns, with the
types below, plus ``vectorId``: the deletion vector's unique id, empty without a deletion vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.actions import Add, DeletionVector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

#: The columns that identify and order live files.
FILE_COLUMNS: Final = ("path", "size", "modificationTime", "deletionVector")

#: The columns of a live file that a reader needs. ``dataChange`` and ``tags`` have no meaning in a snapshot.
WHOLE_COLUMNS: Final = (*FILE_COLUMNS, "partitionValues", "stats", "baseRowId", "defaultRowCommitVersion")

_VECTOR_FIELDS: Final = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality", "offset")


def row_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of rows with ``columns``, without ``vectorId``."""
    import pyarrow as pa

    vector = {name: pa.string() if name in _VECTOR_FIELDS[:2] else pa.int64() for name in _VECTOR_FIELDS}
    types = {
        "path": pa.string(),
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "deletionVector": pa.struct(vector),
        "partitionValues": pa.map_(pa.string(), pa.string()),
        "stats": pa.string(),
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
    }
    return pa.schema([(name, types[name]) for name in columns])


def parquet_columns(add: pa.DataType, columns: Sequence[str]) -> list[str]:
    """Return the Parquet columns to read for ``columns`` from a checkpoint whose ``add`` has the type ``add``."""
    wanted = [f"add.{name}" for name in columns if add.get_field_index(name) >= 0]
    if "stats" in columns and _has_parsed_row_count(add):
        wanted.append("add.stats_parsed.numRecords")
    return wanted


def rows_from_struct(add: pa.StructArray, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of an ``add`` column as Parquet delivers it; null rows (other actions) are omitted.

    Statistics that exist only as a struct become ``{"numRecords":n}``: minima and maxima only help to skip files.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = row_schema(columns)
    arrays = [_field(add, name, kind) for name, kind in zip(schema.names, schema.types, strict=True)]
    if "stats" in columns and _has_parsed_row_count(add.type):
        count = pc.cast(pc.struct_field(add, ["stats_parsed", "numRecords"]), pa.string())
        parsed = pc.binary_join_element_wise('{"numRecords":', count, "}", "")
        at = schema.names.index("stats")
        arrays[at] = pc.coalesce(arrays[at], parsed)
    batch = pa.record_batch(arrays, schema=schema)
    paths = batch.column("path")
    if paths.null_count:
        batch = batch.filter(paths.is_valid())
    return _with_vector_id(_checked(batch))


def rows_from_adds(adds: Sequence[Add], columns: Sequence[str]) -> pa.RecordBatch:
    """Return ``adds`` as rows."""
    import pyarrow as pa

    schema = row_schema(columns)
    arrays = [
        pa.array([_plain(getattr(add, name)) for add in adds], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return _with_vector_id(pa.record_batch(arrays, schema=schema))


def adds_from_rows(batch: pa.RecordBatch) -> Iterable[Add]:
    """Yield the rows of ``batch``, which has all of :data:`WHOLE_COLUMNS`, as values."""
    columns = [batch.column(name).to_pylist() for name in WHOLE_COLUMNS]
    for path, size, time, vector, values, stats, base, version in zip(*columns, strict=True):
        yield Add(
            path=path,
            size=size,
            modificationTime=time,
            deletionVector=None if vector is None else DeletionVector(**_without_nulls(vector)),
            partitionValues=None if values is None else dict(values),
            stats=stats,
            baseRowId=base,
            defaultRowCommitVersion=version,
        )


def with_root(batch: pa.RecordBatch, root: str) -> pa.RecordBatch:
    """Return the rows with ``root`` prepended to each path that begins with ``/``; see :func:`.paths.root_of`."""
    import pyarrow.compute as pc

    paths = batch.column("path")
    if not _may_begin_with(paths, "/"):
        return batch
    is_bare = pc.starts_with(paths, "/")
    at = batch.schema.get_field_index("path")
    whole = pc.if_else(is_bare, pc.binary_join_element_wise(root, paths, ""), paths)
    return batch.set_column(at, batch.schema.field(at), whole)


def text_bounds(texts: pa.StringArray) -> tuple[Any, pa.Buffer | None]:
    """Return where texts begin and end in their bytes, one position more than there are texts; and the bytes."""
    import numpy as np

    _, offsets, data = texts.buffers()
    return np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1], data


def _may_begin_with(texts: pa.StringArray, letter: str) -> bool:
    """Return false if no string begins with ``letter``; takes a third of the time of comparing all of them."""
    import numpy as np

    if not len(texts):
        return False
    bounds, data = text_bounds(texts)
    if not data:
        return False
    starts = bounds[:-1]
    # an empty string at the end has no first letter; it is compared by the last byte of the data instead
    return bool(np.any(np.frombuffer(data, np.uint8)[np.minimum(starts, len(data) - 1)] == ord(letter)))


def file_keys(batch: pa.RecordBatch) -> pa.StringArray:
    """Return path and deletion vector id of each row as one string, as :func:`file_key` makes it."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(batch.column("path"), batch.column("vectorId"), "\0")


def file_key(path: str, vector: DeletionVector | None) -> str:
    """Return the identity of a logical file as one string."""
    return f"{path}\0{'' if vector is None else vector.unique_id}"


def _has_parsed_row_count(add: pa.DataType) -> bool:
    at = add.get_field_index("stats_parsed")
    return bool(at >= 0 and add.field(at).type.get_field_index("numRecords") >= 0)


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows after checking that numbers are in the ranges of :class:`Add`; missing ones become its default 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        if not pa.types.is_integer(column.type) and column.null_count < batch.num_rows:
            # Parquet readers do not validate strings; one that is not UTF-8 would fail much later, at its conversion
            column.validate(full=True)
        if pa.types.is_integer(column.type):
            _check_range(name, column)
            if column.null_count and name in ("size", "modificationTime"):
                batch = batch.set_column(at, batch.schema.field(at), pc.fill_null(column, 0))
        elif name == "deletionVector" and column.null_count < batch.num_rows:
            vectors = column.drop_null()
            for field in _VECTOR_FIELDS:
                values = pc.struct_field(vectors, field)
                if pa.types.is_integer(values.type):
                    _check_range(f"{name}.{field}", values)
                elif values.null_count:
                    raise ValueError(f"{name}.{field} of a file is missing")
    return batch


def _check_range(name: str, column: pa.Array) -> None:
    import pyarrow.compute as pc

    least = pc.min(column).as_py()
    if least is not None and least < 0:
        raise ValueError(f"{name} of a file is {least}; expected 0 or more")


def _with_vector_id(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    vectors = batch.column("deletionVector")
    if vectors.null_count == batch.num_rows:
        ids = pa.repeat("", batch.num_rows)
    else:
        offset = pc.cast(pc.struct_field(vectors, "offset"), pa.string())
        tail = pc.coalesce(pc.binary_join_element_wise("@", offset, ""), "")
        head = (pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv"))
        ids = pc.binary_join_element_wise(*head, tail, "", null_handling="replace", null_replacement="")
    return batch.append_column("vectorId", ids)


def _field(struct: pa.StructArray, name: str, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), kind)
    return _cast(pc.struct_field(struct, name), kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if array.type == kind:
        return array
    if not pa.types.is_struct(kind):
        return array.cast(kind)
    # by name: writers order the fields of a struct differently, and omit those they do not know
    children = [_field(array, field.name, field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in value.items() if field is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, DeletionVector):
        return {name: getattr(value, name) for name in _VECTOR_FIELDS}
    return list(value.items()) if isinstance(value, dict) else value
