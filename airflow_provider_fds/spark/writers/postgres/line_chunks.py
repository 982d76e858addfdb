"""Lines that Spark makes, as pieces of text on the driver, one partition after the other.

Unpacking each line as a row of its own costs the driver as much as everything else together. With pyarrow, lines come
as Arrow batches, whose texts are one after the other in memory, and two partitions are made while one is taken. Without
it, over Spark Connect, and where a version of Spark does not give batches by partition, they come as rows.

In an application each partition is a job of its own. Rows that Spark could move to another partition, if it lost them
and made them again, are kept first: they would be missing, or there twice. Standard library and pyspark, Python 3.9
syntax; pyarrow if it is there.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from itertools import islice
from typing import Any, ContextManager, Final, Iterator, List, Optional, Tuple, Union

from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.settings import session_conf
from airflow_provider_fds.spark.writers.rows.kept_rows import kept_rows

#: Characters of rows that make a piece.
_CHUNK = 1 << 18
#: Partitions of Arrow batches that are made side by side, or wait.
_AHEAD: Final = 2
_LEAST_PARTITIONS: Final = "spark.sql.files.minPartitionNum"


def line_chunks(frame: Any) -> Iterator[Tuple[Union[str, bytes], int]]:
    """Yield the lines in pieces, each with its number of lines; at most three partitions are held in memory.

    Args:
        frame: With one column, a text that is never NULL.
    """
    if is_connect(frame.sparkSession):
        # all partitions are one job
        yield from _of_rows(frame)
        return
    with _settings_in_tasks(frame.sparkSession), kept_rows(frame) if _may_move(frame) else nullcontext(frame) as lines:
        batches = _arrow_batches(lines)
        yield from _of_rows(lines) if batches is None else batches


@contextmanager
def _settings_in_tasks(spark: Any) -> Iterator[None]:
    """Let the jobs of this thread have the settings of the session, as Spark does for a query, not for an RDD of it.

    Otherwise their tasks have the defaults, by which the user's functions may return something else.
    """
    context = spark.sparkContext._jsc.sc()
    before = context.getLocalProperties()
    properties = before.clone()
    settings = spark._jsparkSession.sessionState().conf().getAllConfs()
    # of Scala 2.12, too
    properties.putAll(spark._jvm.scala.collection.JavaConverters.mapAsJavaMap(settings))
    context.setLocalProperties(properties)
    try:
        yield
    finally:
        context.setLocalProperties(before)


def _may_move(frame: Any) -> bool:
    """Return whether rows could come to another partition if Spark made them again.

    One shuffle divides rows by their values, and keeps each in its partition, unless the values change. Behind it their
    order may be another one, so that what takes the first of several, or numbers them, gives a second shuffle other
    values: https://issues.apache.org/jira/browse/SPARK-23207, https://issues.apache.org/jira/browse/SPARK-38388.
    """
    execution = frame._jdf.queryExecution()
    with _small_partitions(frame.sparkSession):
        rdd = execution.toRdd()
    if rdd.outputDeterministicLevel().toString() == "INDETERMINATE":
        return True
    shuffles = rdd.toDebugString().count("+-(")
    return shuffles > 1 or (shuffles == 1 and not execution.optimizedPlan().deterministic())


def _of_rows(frame: Any) -> Iterator[Tuple[str, int]]:
    piece: List[str] = []
    size = 0
    for row in frame.toLocalIterator(prefetchPartitions=True):
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
    batches = _side_by_side(spark.sparkContext, found)
    return (_text_of(pa.ipc.read_record_batch(pa.py_buffer(batch), schema), is_large) for batch in batches)


def _small_partitions(spark: Any) -> ContextManager[None]:
    """Let Spark divide files into more partitions than it has cores, so that some are taken while others are made."""
    is_chosen = spark.conf.get(_LEAST_PARTITIONS, None) is not None
    least = str(2 * spark.sparkContext.defaultParallelism)
    return session_conf(spark, {} if is_chosen else {_LEAST_PARTITIONS: least})


def _side_by_side(context: Any, rdd: Any) -> Iterator[bytes]:
    """Yield what the partitions of an RDD of bytes have, in their order; some are made while one is taken."""
    from pyspark import InheritableThread
    from pyspark.rdd import _load_from_socket
    from pyspark.serializers import NoOpSerializer

    def made(partition: int) -> Tuple[ExitStack, Iterator[bytes]]:
        served = context._jvm.PythonRDD.runJob(context._jsc.sc(), rdd, [partition])
        with ExitStack() as opened:
            # at once, for the JVM waits only some seconds for this
            found = _load_from_socket(served, NoOpSerializer())
            # Spark 3.5 gives the iterator
            batches = opened.enter_context(found) if hasattr(found, "__enter__") else found
            return opened.pop_all(), batches

    def begin(partition: int) -> Future[Tuple[ExitStack, Iterator[bytes]]]:
        future: Future[Tuple[ExitStack, Iterator[bytes]]] = Future()

        def work() -> None:
            try:
                future.set_result(made(partition))
            except BaseException as error:  # noqa: BLE001 - who takes the partition gets it
                future.set_exception(error)

        InheritableThread(target=work, name="fds-lines", daemon=True).start()
        return future

    numbers = iter(range(rdd.getNumPartitions()))
    waiting = deque(map(begin, islice(numbers, _AHEAD)))
    while waiting:
        opened, batches = waiting.popleft().result()
        waiting.extend(map(begin, islice(numbers, 1)))
        with opened:
            yield from batches


def _text_of(batch: Any, is_large: bool) -> Tuple[bytes, int]:
    column = batch.column(0)
    if not len(column):
        return b"", 0
    _, ends, text = column.buffers()
    at = memoryview(ends).cast("B").cast("q" if is_large else "i")
    first, last = at[column.offset], at[column.offset + len(column)]
    return bytes(memoryview(text)[first:last]), len(column)
