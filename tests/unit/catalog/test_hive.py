"""The client of a Hive metastore, with a Thrift server of this process, and with servers that are none."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from pymetastore.hive_metastore import ThriftHiveMetastore
from pymetastore.hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    FieldSchema,
    GetTableResult,
    GetTablesResult,
    MetaException,
    NoSuchObjectException,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer, TTransportException

from airflow_provider_fds.catalog import hive, thrift_connection
from airflow_provider_fds.catalog.hive import HiveCatalog
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, StorageError, TableNotFoundError
from airflow_provider_fds.reasons import Reason

ORDERS = TableName(("lab", "orders"))


def delta(name="orders", created=1_700_000_000, columns=1):
    serde = SerDeInfo(parameters={"path": f"file:/lake/{name}", "serialization.format": "1"})
    fields = [FieldSchema(f"column_{i}", "array<string>", "from deserializer") for i in range(columns)]
    descriptor = StorageDescriptor(location=f"file:/wh/{name}-__PLACEHOLDER__", serdeInfo=serde, cols=fields)
    parameters = {"spark.sql.sources.provider": "delta"}
    return Table(name, "lab", createTime=created, sd=descriptor, parameters=parameters, tableType="EXTERNAL_TABLE")


class Metastore:
    """A handler of Thrift's own server code."""

    def __init__(self):
        self.entries = {"orders": delta(), "wide": delta("wide", columns=3000)}
        self.refusal = None
        self.reaches = ("file:", "hdfs:")
        self.folder = "file:/wh/lab.db/"

    def create_table(self, entry):
        if self.refusal is not None:
            raise MetaException(self.refusal)
        if entry.tableName in self.entries:
            raise AlreadyExistsException(f"Table {entry.tableName} already exists")
        if not entry.sd.location.startswith(self.reaches):
            raise MetaException("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found")
        self.entries[entry.tableName] = entry

    def get_table(self, database, table):
        if self.refusal is not None:
            raise MetaException(self.refusal)
        if database != "lab" or table not in self.entries:
            raise NoSuchObjectException(f"{database}.{table} table not found")
        return self.entries[table]

    def get_table_req(self, req):
        return GetTableResult(self.get_table(req.dbName, req.tblName))

    def get_database(self, database):
        if database != "lab":
            raise NoSuchObjectException(database)
        return Database("lab", locationUri=self.folder)

    def get_all_tables(self, database):
        return list(self.entries) if database == "lab" else []

    def get_table_objects_by_name(self, database, names):
        assert len(names) <= 100
        return [self.entries[name] for name in names if name in self.entries]

    def get_table_objects_by_name_req(self, req):
        return GetTablesResult(self.get_table_objects_by_name(req.dbName, req.tblNames))


class _Stream:
    """What the server's code reads from and writes to: a socket, whole answers at a time."""

    def __init__(self, connection):
        self.connection = connection
        self.buffered = TMemoryBuffer()

    def readAll(self, size):  # noqa: N802
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise TTransportException(TTransportException.END_OF_FILE)
            data += part
        return data

    def write(self, data):
        self.buffered.write(data)

    def flush(self):
        self.connection.sendall(self.buffered.getvalue())
        self.buffered = TMemoryBuffer()


class Server:
    """A server on loopback, which gives each connection to a function; the connections stay open until the end."""

    def __init__(self, serve):
        self.serve = serve
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.uri = f"thrift://127.0.0.1:{self.port}"
        self.open = []
        self.threads = [threading.Thread(target=self._accept)]
        self.count = 0
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            self.open.append(connection)
            self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self.threads[-1].start()

    def _serve(self, connection):
        try:
            self.serve(connection)
        except (OSError, TTransportException):
            connection.close()

    def close_connections(self):
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self.open.clear()

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        finally:
            self.listener.close()
        self.threads[0].join(10)
        self.close_connections()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


@contextmanager
def serving(serve):
    server = Server(serve)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def metastore():
    return Metastore()


@pytest.fixture
def processor(metastore):
    return ThriftHiveMetastore.Processor(metastore)


@pytest.fixture
def server(processor):
    def serve(connection):
        protocol = TBinaryProtocol(_Stream(connection))
        while True:
            processor.process(protocol, protocol)

    with serving(serve) as server:
        yield server


@pytest.fixture
def catalog(server):
    catalog = HiveCatalog(server.uri, timeout_seconds=10)
    yield catalog
    catalog.close()


def test_a_table_is_loaded_by_name(catalog):
    found = catalog.load(ORDERS)
    assert (found.name, found.location, found.table_id) == (ORDERS, "file:///lake/orders", "1700000000")
    assert found.options == {}
    assert found.view is None


def test_a_table_with_many_columns_is_loaded(catalog):
    assert catalog.load(TableName(("lab", "wide"))).location == "file:///lake/wide"


def test_the_name_is_spelled_as_the_metastore_does(metastore, catalog):
    metastore.entries["ORDERS"] = delta()
    assert catalog.load(TableName(("lab", "ORDERS"))).name == ORDERS


def test_a_newer_metastore_without_get_table_is_asked_the_other_way(processor, catalog):
    del processor._processMap["get_table"]
    assert catalog.load(ORDERS).table_id == "1700000000"


def test_a_table_without_descriptor_is_a_table_without_location(metastore, catalog):
    metastore.entries["bare"] = Table("bare", "lab", parameters={"spark.sql.sources.provider": "delta"})
    with pytest.raises(ConfigurationError, match="without a location"):
        catalog.load(TableName(("lab", "bare")))


def test_names_are_listed(catalog):
    assert catalog.tables(TableName(("lab",))) == [ORDERS, TableName(("lab", "wide"))]


@pytest.mark.parametrize("is_newer", [False, True])
def test_the_tables_of_a_database_are_described_in_a_few_calls(metastore, processor, catalog, is_newer):
    if is_newer:
        del processor._processMap["get_table_objects_by_name"]
    metastore.entries["view"] = Table("view", "lab", createTime=7, tableType="VIRTUAL_VIEW")
    metastore.entries |= {f"t{i:03}": delta(f"t{i:03}", created=i) for i in range(150)}
    found = {one.name.parts[1]: one for one in catalog.listed(TableName(("lab",)))}
    assert list(found) == sorted(metastore.entries)
    for name, one in found.items():
        if name != "view":
            loaded = catalog.load(one.name)
            assert (one.location, one.table_id, one.problem) == (loaded.location, loaded.table_id, "")
    assert (found["view"].location, "is a view" in found["view"].problem) == ("", True)
    with pytest.raises(TableNotFoundError, match="There is no database of this name"):
        catalog.listed(TableName(("nope",)))


NEW = TableName(("lab", "New"))


def test_a_new_table_is_in_the_folder_of_its_database(metastore, catalog):
    assert catalog.new_location(NEW) == "file:///wh/lab.db/new"
    metastore.folder = "s3a://lake/a b/lab.db"
    assert catalog.new_location(NEW) == "s3a://lake/a%20b/lab.db/new"
    metastore.folder = None
    assert catalog.new_location(NEW) == ""
    with pytest.raises(TableNotFoundError, match="There is no database of this name"):
        catalog.new_location(TableName(("nope", "new")))
    with pytest.raises(ConfigurationError, match="accepts letters, digits and '_'") as caught:
        catalog.new_location(TableName(("lab", "größe")))
    assert caught.value.reason_code == Reason.CATALOG_TABLE_UNWRITABLE


def test_a_table_is_registered_as_spark_does(metastore, catalog):
    catalog.register(NEW, "file:///lake/a%20b%2520", Metadata("1"))
    entry = metastore.entries["New"]
    assert (entry.tableType, entry.sd.location) == ("EXTERNAL_TABLE", "file:///lake/a b%20")
    assert entry.parameters["spark.sql.sources.provider"] == "delta"
    assert entry.sd.serdeInfo.parameters["path"] == "file:///lake/a b%20"
    assert catalog.load_sink(NEW).location == "file:///lake/a%20b%2520"
    # again, and another table of that name: neither replaces it
    catalog.register(NEW, "file:///lake/other", Metadata("1"))
    assert metastore.entries["New"] is entry


def test_a_folder_that_the_metastore_does_not_reach_is_only_in_the_serde(metastore, catalog):
    catalog.register(NEW, "s3a://lake/new", Metadata("1"))
    assert metastore.entries["New"].sd.location == "file:/wh/lab.db/New-__PLACEHOLDER__"
    assert catalog.load_sink(NEW).location == "s3a://lake/new"


def test_a_right_to_create_that_is_missing_is_named(metastore, catalog):
    metastore.refusal = "Permission denied: user=fds, access=WRITE"
    with pytest.raises(AccessDeniedError, match=r"does not let FDS create lab\.New: .*the right to create tables"):
        catalog.register(NEW, "file:///lake/new", Metadata("1"))
    metastore.refusal = "out of disk"
    with pytest.raises(StorageError, match="out of disk"):
        catalog.register(NEW, "file:///lake/new", Metadata("1"))
    assert "New" not in metastore.entries


def test_a_missing_table_is_not_found(server, catalog):
    for name in ("lab.nope", "nope.orders"):
        with pytest.raises(TableNotFoundError, match=f"{server.uri} has no table {name}. Correct the name") as caught:
            catalog.load(TableName.parse(name))
        assert caught.value.reason_code == Reason.CATALOG_TABLE_NOT_FOUND
    with pytest.raises(TableNotFoundError, match="There is no database of this name"):
        catalog.tables(TableName(("nope",)))
    assert server.count == 1


@pytest.mark.parametrize("name", ["orders", "main.lab.orders"])
def test_a_name_has_a_database_and_a_table(catalog, name):
    with pytest.raises(ConfigurationError, match=r"<database>\.<table>"):
        catalog.load(TableName.parse(name))


def test_a_refusal_is_told_apart_from_a_fault(metastore, catalog):
    metastore.refusal = "java.security.AccessControlException: Permission denied: user=fds, access=READ"
    with pytest.raises(AccessDeniedError, match="Permission denied: user=fds") as denied:
        catalog.load(ORDERS)
    assert denied.value.reason_code == Reason.CATALOG_DENIED
    metastore.refusal = "Unable to reach the database, password=hunter2\n\tat org.x"
    with pytest.raises(StorageError, match="Unable to reach the database") as fault:
        catalog.load(ORDERS)
    assert fault.value.retryable
    assert "hunter2" not in str(fault.value)
    assert "org.x" not in str(fault.value)


def test_one_connection_is_kept_between_calls(server, catalog):
    for _ in range(5):
        catalog.load(ORDERS)
    assert server.count == 1


def test_a_connection_that_was_idle_for_long_is_not_used_again(server, catalog, monkeypatch):
    catalog.load(ORDERS)
    monkeypatch.setattr(hive, "_IDLE_SECONDS", 0.0)
    catalog.load(ORDERS)
    assert server.count == 2


def test_a_connection_that_the_server_closed_is_made_again(server, catalog):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: catalog.load(ORDERS), range(12)))
    server.close_connections()
    assert catalog.load(ORDERS).table_id == "1700000000"


def test_many_threads_share_a_catalog(server, catalog):
    with ThreadPoolExecutor(8) as pool:
        names = ["orders", "wide"] * 20
        found = list(pool.map(lambda name: catalog.load(TableName(("lab", name))).location, names))
    assert found == [f"file:///lake/{name}" for name in names]
    assert server.count <= 40
    assert len(catalog._idle) <= 4


def test_a_child_does_not_use_the_connections_of_its_parent(server, catalog, monkeypatch):
    catalog.load(ORDERS)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    catalog.load(ORDERS)
    assert server.count == 2


def test_the_next_of_several_metastores_is_used_if_the_first_is_down(server):
    catalog = HiveCatalog(f"thrift://127.0.0.1:{free_port()}, {server.uri}")
    assert catalog.load(ORDERS).table_id == "1700000000"
    catalog.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def assert_unavailable(uri, problem, timeout_seconds=10.0):
    catalog = HiveCatalog(uri, timeout_seconds=timeout_seconds)
    for ask in (lambda: catalog.load(ORDERS), lambda: catalog.tables(TableName(("lab",)))):
        began = time.monotonic()
        with pytest.raises(StorageError, match=problem) as caught:
            ask()
        assert time.monotonic() - began < timeout_seconds + 3
        assert caught.value.retryable
        assert caught.value.reason_code == Reason.CATALOG_UNAVAILABLE
        assert uri in str(caught.value)


def test_a_port_that_refuses_is_unavailable():
    assert_unavailable(f"thrift://127.0.0.1:{free_port()}", "no connection .*refused")


def test_a_host_that_is_unknown_is_unavailable():
    assert_unavailable("thrift://metastore.invalid:9083", "no connection")


def test_a_server_that_never_answers_is_unavailable():
    with serving(lambda connection: None) as server:
        assert_unavailable(server.uri, "no complete answer within 0.3 seconds.*Kerberos", timeout_seconds=0.3)


def test_a_server_that_answers_byte_by_byte_is_unavailable():
    def drip(connection):
        connection.recv(100)
        for byte in struct.pack("!I", 0x80010002) + struct.pack("!I", 1000) + b"x" * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    with serving(drip) as server:
        assert_unavailable(server.uri, "no complete answer within 0.5 seconds", timeout_seconds=0.5)


def test_a_server_that_closes_the_connection_is_unavailable():
    def hang_up(connection):
        connection.recv(100)
        connection.shutdown(socket.SHUT_RDWR)

    with serving(hang_up) as server:
        assert_unavailable(server.uri, "the connection broke.*Kerberos")


def reply(kind=2):
    return struct.pack("!I", 0x80010000 | kind) + struct.pack("!I", 9) + b"get_table" + struct.pack("!I", 0)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(b"\x15\x03\x03\x00\x02\x02\x0a", id="tls"),
        pytest.param(b"\x03\x00\x00\x00\x10Invalid status..", id="sasl"),
        pytest.param(b"\x7f\xff\xff\xff" + b"x" * 64, id="huge-name"),
        pytest.param(b"\x80\x01\x00\x02\x7f\xff\xff\xff" + b"x" * 64, id="huge-string"),
        pytest.param(b"\x80\x01\x00\x02\xff\xff\xff\xff" + b"x" * 64, id="negative-length"),
        pytest.param(reply() + b"\x0d\x00\x09\x0b\x0b\x7f\xff\xff\xff", id="huge-map"),
        pytest.param(reply() + b"\x0f\x00\x09\x0f\x7f\xff\xff\xff", id="huge-list"),
        pytest.param(reply() + b"\x0c\x00\x09" * 5000, id="endless-structs"),
        pytest.param(reply() + b"\x77\x00\x00", id="unknown-type"),
        pytest.param(reply() + b"\x00", id="empty-answer"),
        pytest.param(reply(kind=3) + b"\x00", id="exception"),
        pytest.param(b"\x80\x01\x00\x02\x00\x00\x00\x02\xff\xfe" + b"\x00" * 64, id="not-utf-8"),
    ],
)
def test_what_is_no_answer_of_a_metastore_is_unavailable(answer):
    def say(connection):
        connection.recv(1000)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)

    with serving(say) as server:
        assert_unavailable(
            server.uri, "no answer of a metastore|the connection broke|it answered TApplicationException"
        )


def test_an_answer_that_never_ends_is_unavailable(monkeypatch):
    monkeypatch.setattr(thrift_connection, "_MOST_BYTES", 200_000)

    def flood(connection):
        connection.recv(100)
        connection.sendall(reply())
        while True:
            connection.sendall(b"\x08\x00\x09\x00\x00\x00\x01" * 1000)

    with serving(flood) as server:
        assert_unavailable(server.uri, "more than")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "metastore:9083",
        "http://metastore:9083",
        "thrift://",
        "thrift://h:port",
        "thrift://h:99999",
        "thrift://h:1/db",
        "thrift://user:hunter2@h:1",
        "thrift://h:1,",
    ],
)
def test_what_is_no_address_of_a_metastore_is_refused(uri):
    with pytest.raises(ConfigurationError, match="expected thrift://<host>:<port>") as caught:
        HiveCatalog(uri)
    assert "hunter2" not in str(caught.value)


def test_the_extra_is_named_if_the_client_is_missing(monkeypatch):
    monkeypatch.setattr(hive, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'airflow-provider-fds\[hive\]'"):
        HiveCatalog("thrift://h:1")
