"""Whether a Spark Connect server does what FDS relies on, or only speaks the protocol.

Such a server may accept an option or a setting and ignore it without an error: rows are then written twice, or read
wrongly. So before its first batch, a server is asked four questions in a session of its own, with one small table in
staging. A server that fits is remembered in staging, which all workers share: a worker may be new for each task.
A Spark that FDS starts itself has Delta and needs no questions. Standard library and pyspark only.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from airflow_provider_fds import __version__
from airflow_provider_fds.spark.runtime.failures import explain
from airflow_provider_fds.spark.runtime.hadoop_files import exists, hadoop_path, remove_folder, write_bytes
from airflow_provider_fds.spark.runtime.settings import DELTA_SESSION, TIME_ZONE, set_all
from airflow_provider_fds.spark.sessions.connect_server import ServerUnfitError, close

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.spark.sessions.connect_server import ConnectServer

#: Folder in staging. No stream has this name, because none begins with a dot.
FOLDER: Final = ".servers"

_APP_ID: Final = "fds-semantics"
_ANSI: Final = "spark.sql.ansi.enabled"
#: Time zone, ANSI mode, and what they make of the beginning of 1970 and of the type of a sum.
_SETTINGS: Final = (
    ("Asia/Kolkata", "true", "1970-01-01 05:30:00", "bigint"),
    ("UTC", "false", "1970-01-01 00:00:00", "double"),
)
#: For queries of a row: to compile them, or to plan them again after each stage, takes longer than to run them.
_SMALL: Final = {
    **{key: value for key, value in DELTA_SESSION.items() if key.startswith("spark.databricks.")},
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
#: As in a manifest: the rows of a file have the version that the log says.
_LISTED: Final = [(7, 3)]
_FIELDS: Final = ("id", "_commit_version")


#: Servers that this process knows to fit: it may run the jobs of many streams.
_FIT: Final[set[str]] = set()


class ServerDiffersError(ServerUnfitError):
    """The server ignores what FDS relies on."""


def check_semantics(
    server: ConnectServer, spark: Any, conf: Mapping[str, str], spec_uri: str, tell: Callable[[str], None]
) -> None:
    """Refuse a server that ignores what FDS relies on; it is asked once for each of its starts and versions.

    Args:
        server: The server.
        spark: A session on it, whose settings stay as they are.
        conf: The user's settings for a session.
        spec_uri: URI of the job spec, which is in the folder ``jobs`` of a stream in staging.
        tell: Called with each line of output for people.

    Raises:
        ServerDiffersError: It gave wrong answers; nothing was written to a sink.
        ServerUnreachableError: The server does not answer.
        ServerUnfitError: It refuses the session.
    """
    facts = [server.endpoint, spark.version, spark.conf.get("spark.app.id", None), __version__]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    if name in _FIT:
        return
    staging = spec_uri.rpartition("/jobs/")[0].rpartition("/")[0]
    folder = f"{staging}/{FOLDER}"
    kept = hadoop_path(f"{folder}/{name}.json", spark)
    if not exists(kept):
        # another job may work in the given session
        own = server.open_fit(conf, is_active=False)
        try:
            semantics = Semantics(own, folder)
            semantics.ask()
        finally:
            close(own)
        which = f"{server.name} at {server.endpoint} (Spark {spark.version})"
        if semantics.differences:
            raise ServerDiffersError(
                f"the Spark Connect server of {which} ignores what FDS relies on: {'; '.join(semantics.differences)}. "
                "Nothing was written to the sink. Use a server of Apache Spark with Delta, such as `fds "
                "connect-server` starts"
            )
        if semantics.unknown:
            tell(f"{which}: it is unknown whether the server does what FDS relies on: {semantics.unknown[0]}")
            return
        write_bytes(kept, json.dumps(facts).encode())
    _FIT.add(name)


class Semantics:
    """The questions to a server.

    Args:
        spark: A session on it that nothing else uses, because settings are changed.
        folder: URI of the folder for the table, as Spark reaches it; it is removed in the end.

    Attributes:
        differences: What the server does otherwise than Spark with Delta, and what it answered, one clause each.
        unknown: The error of each question without an answer.
    """

    def __init__(self, spark: Any, folder: str) -> None:
        self._spark = spark
        self._uri = f"{folder}/{uuid4().hex}"
        self._table = hadoop_path(self._uri, spark)
        self.differences: list[str] = []
        self.unknown: list[str] = []

    def ask(self) -> None:
        """Ask all questions.

        Raises:
            Exception: Staging cannot be written.
        """
        questions: tuple[Callable[[], str | None], ...] = (self._rows, self._transaction, self._settings)
        set_all(self._spark, _SMALL)
        try:
            self._write_table()
            for question in questions:
                try:
                    difference = question()
                except Exception as error:  # noqa: BLE001  # whatever it is, the batch reports it if it recurs
                    self.unknown.append(explain(error).message)
                else:
                    self.differences += [] if difference is None else [difference]
        finally:
            remove_folder(self._table)

    def _write_table(self) -> None:
        """Write a table whose log lists one of its two files, and has a transaction."""
        listed, other = _parquet(_LISTED[0][0]), _parquet(_LISTED[0][0] + 1)
        fields: list[dict[str, Any]] = [
            {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in _FIELDS
        ]
        metadata = {
            "id": str(uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [_FIELDS[1]],
            "configuration": {},
        }
        file = {
            # with its whole URI, as in a manifest
            "path": f"{self._uri}/listed.parquet",
            "partitionValues": {_FIELDS[1]: str(_LISTED[0][1])},
            "size": len(listed),
            "modificationTime": 0,
            "dataChange": True,
        }
        protocol, transaction = {"minReaderVersion": 1, "minWriterVersion": 2}, {"appId": _APP_ID, "version": 1}
        actions = [{"protocol": protocol}, {"metaData": metadata}, {"txn": transaction}, {"add": file}]
        # as for a manifest, it saves Spark a job
        checksum = {
            "tableSizeBytes": len(listed),
            "numFiles": 1,
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": [transaction],
            "domainMetadata": [],
            "metadata": metadata,
            "protocol": protocol,
        }
        write_bytes(f"{self._table}/listed.parquet", listed)
        write_bytes(f"{self._table}/other.parquet", other)
        write_bytes(f"{self._table}/_delta_log/{0:020d}.crc", json.dumps(checksum).encode())
        write_bytes(self._commit(0), "".join(f"{json.dumps(action)}\n" for action in actions).encode())

    def _commit(self, version: int) -> str:
        return f"{self._table}/_delta_log/{version:020d}.json"

    def _rows(self) -> str | None:
        found = sorted(tuple(row) for row in self._spark.read.format("delta").load(self._table).collect())
        if found == _LISTED:
            return None
        return f"a manifest is not read as its rows: {found} instead of {_LISTED}"

    def _transaction(self) -> str | None:
        rows = self._spark.range(1).selectExpr("id", f"id AS {_FIELDS[1]}")
        writer = rows.write.format("delta").mode("append").option("txnAppId", _APP_ID).option("txnVersion", "1")
        writer.save(self._table)
        if not exists(self._commit(1)):
            return None
        return (
            "a transaction that the table already has is written again (txnAppId, txnVersion): the table has version 1"
        )

    def _settings(self) -> str | None:
        found = []
        for zone, ansi, *_ in _SETTINGS:
            set_all(self._spark, {TIME_ZONE: zone, _ANSI: ansi})
            # a cast that fails would leave an error in the task's log
            query = "SELECT CAST(TIMESTAMP_SECONDS(0) AS STRING), TYPEOF('1' + 1)"
            found.append(tuple(self._spark.sql(query).collect()[0]))
        problems = []
        for key, at, what in ((TIME_ZONE, 0, "second 0 is"), (_ANSI, 1, "the sum of text and integer is")):
            here, wanted = [row[at] for row in found], [row[at + 2] for row in _SETTINGS]
            if here != wanted:
                problems.append(f"{key} is ignored: {what} {' and '.join(here)} instead of {' and '.join(wanted)}")
        return "; ".join(problems) or None


def _parquet(value: int) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    data = io.BytesIO()
    pq.write_table(pa.table({_FIELDS[0]: pa.array([value], pa.int64())}), data)
    return data.getvalue()
