"""Saves Delta the look-up of a sink's transactions before a small append, with what the checksum file says.

Before Delta appends with ``txnAppId`` and ``txnVersion``, it looks up the application's newest transaction. It
reconstructs the state of the whole table for it, with three Spark jobs, which cost four times as much as the append.
The checksum file of the newest version, which Delta has already read, lists all transactions as well. They are put
where Delta keeps the result of its look-up: in a field of the snapshot of that version. The comparison, the transaction
and the check for conflicts remain Delta's; a snapshot of another version gets a look-up of its own.

A checksum file is trusted only if FDS has read the log up to the same version, and if the file's number of files and
their size are those of the version before it with what the commit adds and removes: then it is not the copy of another
one.

A Spark Connect server does it by FDS's classes, if it has them. Standard library, py4j and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple
from weakref import WeakKeyDictionary

from airflow_provider_fds.batch.sink.sink_commit import file_actions
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.connect_shortcuts import has_shortcuts, shortcut

if TYPE_CHECKING:
    from airflow_provider_fds.spark.sink_log.history import SinkLog

_logger = logging.getLogger(__name__)

_SNAPSHOT = "org.apache.spark.sql.delta.Snapshot"

#: The bit of each JVM's Delta that says that a snapshot's transactions are known.
_bits_known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


class _UnknownDeltaError(Exception):
    """This Delta differs from the known ones."""


def give_transactions(spark: Any, path: str, read: SinkLog, app_id: str, newest: Optional[int]) -> bool:
    """Give Delta the transactions of the table at ``path`` for the next append, unless there is any doubt.

    Args:
        spark: The session.
        path: The table, as Hadoop writes it.
        read: Its log, as it was read to find ``newest``.
        app_id: The application whose transaction will be looked up.
        newest: Its newest transaction according to the table's log, ``None`` if it has none. Where the checksum file
            differs, Delta looks it up.

    Returns:
        Whether the look-up is saved, provided that no other version is committed before the append.
    """
    try:
        if is_connect(spark):
            return has_shortcuts(spark) and _give_to_server(spark, path, read, app_id, newest)
        return _give(spark, path, read, app_id, newest)
    except Exception as error:  # noqa: BLE001 - whatever this Delta has instead, it looks them up itself
        _logger.debug("Delta looks up the transactions of %s itself: %s", path, error)
        return False


def _give(spark: Any, path: str, read: SinkLog, app_id: str, newest: Optional[int]) -> bool:
    jvm = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    snapshot = log.unsafeVolatileSnapshot()
    checksum = snapshot.checksumOpt()
    if not checksum.isDefined() or not checksum.get().setTransactions().isDefined():
        return False
    versions = _versions(checksum.get().setTransactions().get())
    declared = snapshot.getClass()
    while declared.getName() != _SNAPSHOT:
        declared = declared.getSuperclass()
    # Scala keeps a lazy value in a field, and in a bit whether it has one
    transactions, bits = declared.getDeclaredField("transactions"), declared.getDeclaredField("bitmap$0")
    transactions.setAccessible(True)
    bits.setAccessible(True)
    bit = _bit(jvm, log, transactions, bits)
    is_trusted = read.newest_version == snapshot.version() and _expected(read, snapshot.version()) == (
        checksum.get().numFiles(),
        checksum.get().tableSizeBytes(),
    )
    if versions.get(app_id) != newest or not is_trusted:
        # they may be there already, given for another stream
        bits.setInt(snapshot, bits.getInt(snapshot) & ~bit)
        return False
    if not bits.getInt(snapshot) & bit:
        # in this order, as Scala does: the bits are volatile. A bit of another value that is lost to a thread that
        # sets it at the same time only has that value computed again
        transactions.set(snapshot, _scala_map(spark, versions))
        bits.setInt(snapshot, bits.getInt(snapshot) | bit)
    return True


def _give_to_server(spark: Any, path: str, read: SinkLog, app_id: str, newest: Optional[int]) -> bool:
    version = read.newest_version
    if version is None:
        return False
    files, size = _expected(read, version)
    asked = {"version": version, "app": app_id, "newest": newest, "files": files, "bytes": size}
    # the server does it when it analyses the request
    shortcut(spark, "transactions", path, **asked).schema  # noqa: B018
    return True


def _expected(read: SinkLog, version: int) -> Tuple[int, int]:
    """Return the number of files and their size at a version: those before it, with what it adds and removes.

    Raises:
        FileNotFoundError: The version before it has no checksum file.
    """
    files, size = 0, 0
    if version > 0:
        before = json.loads(read.checksum(version - 1))
        files, size = before["numFiles"], before["tableSizeBytes"]
    content = read.content(version)
    for name, sign in (("add", 1), ("remove", -1)):
        # a remove may lack its size: Delta looks the transactions up then
        sizes = [action["size"] for action in file_actions(content, name)]
        files, size = files + sign * len(sizes), size + sign * sum(sizes)
    return files, size


def _versions(transactions: Any) -> Dict[str, int]:
    versions = {}
    remaining = transactions.iterator()
    while remaining.hasNext():
        transaction = remaining.next()
        versions[transaction.appId()] = transaction.version()
    return versions


def _bit(jvm: Any, log: Any, transactions: Any, bits: Any) -> int:
    """Return the bit of ``transactions``, as the look-up in an empty snapshot sets it, which takes no Spark job."""
    known = _bits_known.get(jvm)
    if known is not None:
        return known
    if bits.getType().getName() != "int":
        raise _UnknownDeltaError(f"its lazy values are recorded in {bits.toGenericString()}")
    empty = jvm.org.apache.spark.sql.delta.DummySnapshot(log.logPath(), log)
    empty.setTransactions()
    before = bits.getInt(empty)
    looked_up = empty.transactions()
    bit: int = bits.getInt(empty) ^ before
    if bit == 0 or bit & (bit - 1) or transactions.get(empty) is None or not looked_up.isEmpty():
        raise _UnknownDeltaError(f"a look-up sets the bits {bit:#b}")
    _bits_known[jvm] = bit
    return bit


def _scala_map(spark: Any, versions: Dict[str, int]) -> Any:
    jvm = spark._jvm
    # an array of longs, because py4j makes an Integer of a small number
    numbers = spark.sparkContext._gateway.new_array(jvm.long, len(versions))
    for index, version in enumerate(versions.values()):
        numbers[index] = version
    names = jvm.PythonUtils.toSeq(list(versions)).iterator()
    return names.zip(jvm.scala.Predef.wrapLongArray(numbers).iterator()).toMap(getattr(jvm.scala.Predef, "$conforms")())
