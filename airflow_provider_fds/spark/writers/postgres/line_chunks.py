"""Lines that Spark makes, as pieces of text on the driver, one partition after the other.

Unpacking each line as a row of its own costs the driver as much as everything else together. With pyarrow, lines come
as Arrow batches, whose texts are one after the other in memory. Without it, over Spark Connect, and where a version of
Spark does not give batches by partition, they come as rows. Standard library and pyspark, Python 3.9 syntax; pyarrow if
it is there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Iterator, List, Optional, Tuple, Union

from airflow_provider_fds.spark.runtime.attempt_identity import is_connect

#: Characters of rows that make a piece.
_CHUNK = 1 << 18


def line_chunks(frame: Any) -> Iterator[Tuple[Union[str, bytes], int]]:
    """Yield the lines in pieces, each with its number of lines; at most two partitions are held in memory.

    Args:
        frame: With one column, a text that is never NULL.
    """
    batches = None if is_connect(frame.sparkSession) else _arrow_batches(frame)
    return _of_rows(frame.toLocalIterator(prefetchPartitions=True)) if batches is None else batches


def _of_rows(rows: Iterator[Any]) -> Iterator[Tuple[str, int]]:
    piece: List[str] = []
    size = 0
    for row in rows:
        piece.append(row[0])
        size += len(row[0])
        if size >= _CHUNK:
            yield "".join(piece), len(piece)
            piece, size = [], 0
    if piece:
        yield "".join(piece), len(piece)


def _arrow_batches(frame: Any) -> Optional[Iterator[Tuple[bytes, int]]]:
    """Return the pieces from Arrow batches, or ``None`` if there are none."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    try:
        pa = import_module("pyarrow")
        found = frame._jdf.toArrowBatchRdd().toJavaRDD()
    except (ImportError, AttributeError):
        return None
    except Py4JJavaError:
        raise
    except Py4JError:
        # this version has no such method
        return None
    spark = frame.sparkSession
    is_large = spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    schema = pa.schema([("line", pa.large_string() if is_large else pa.string())])
    batches = RDD(found, spark.sparkContext, NoOpSerializer()).toLocalIterator(prefetchPartitions=True)
    return (_text_of(pa.ipc.read_record_batch(pa.py_buffer(batch), schema), is_large) for batch in batches)


def _text_of(batch: Any, is_large: bool) -> Tuple[bytes, int]:
    column = batch.column(0)
    if not len(column):
        return b"", 0
    _, ends, text = column.buffers()
    at = memoryview(ends).cast("B").cast("q" if is_large else "i")
    first, last = at[column.offset], at[column.offset + len(column)]
    return bytes(memoryview(text)[first:last]), len(column)
