"""Connections that a server protects: TLS with a certificate that is checked, and passwords."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.batch.sink.postgres_connection import grant
from airflow_provider_fds.spark.writers.postgres.postgres_rows import AppendedRows
from tests.interop.postgres.conftest import Database
from tests.interop.postgres.test_append import ALL, fence
from tests.postgresql import FAST, PostgresServer, missing

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(600)

#: Tests log in as ``fds`` without TLS; the drivers' roles need it, and ``loader`` also a password.
RULES = """\
host all fds all trust
hostssl all plain all trust
hostssl all loader all scram-sha-256
"""


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def certify(folder: Path, name: str) -> None:
    """Make an authority of a name, and a certificate of it for 127.0.0.1 with this name."""
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(folder, *new, "-keyout", f"{name}-ca.key", "-out", f"{name}-ca.crt", "-subj", f"/CN={name} CA")
    signed = ("-CA", f"{name}-ca.crt", "-CAkey", f"{name}-ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(folder, *new, *signed, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", "/CN=127.0.0.1")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("certificates")
    certify(folder, "own")
    certify(folder, "other")
    return folder


@pytest.fixture(scope="module")
def protected_server(certificates: Path) -> Iterator[PostgresServer]:
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-"))
    server = PostgresServer(folder, "fds", "ssl=on", "ssl_cert_file=own.crt", "ssl_key_file=own.key")
    for name in ("own.crt", "own.key"):
        shutil.copy(certificates / name, folder / "data")
        if os.geteuid() == 0:
            shutil.chown(folder / "data" / name, "nobody", "nogroup")
        (folder / "data" / name).chmod(0o600)
    (folder / "data" / "pg_hba.conf").write_text(RULES)
    try:
        server.start()
        Database(server, "postgres").run("CREATE ROLE plain LOGIN SUPERUSER")
        Database(server, "postgres").run("CREATE ROLE loader LOGIN SUPERUSER PASSWORD 'right'")
        yield server
    finally:
        server.stop(FAST)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def protected(protected_server: PostgresServer, stream) -> Database:
    """The database of the stream's connection is one of the protected server."""
    found = Database(protected_server, "postgres")
    found.run("DROP TABLE IF EXISTS public.orders")
    found.run("DROP SCHEMA IF EXISTS fds CASCADE")
    found.run("CREATE TABLE public.orders (id bigint, name text, p bigint)")
    return found


def test_a_certificate_of_the_own_authority_is_accepted_and_checked(
    spark, stream, protected, certificates, monkeypatch
):
    verified = {"sslmode": "verify-full", "sslrootcert": str(certificates / "own-ca.crt")}
    grant("pg", protected.parameters(user="loader", password="right", **verified))
    seen = []
    write = AppendedRows.write

    def written(self, connection, columns):
        seen.append(connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()[0])
        return write(self, connection, columns)

    monkeypatch.setattr(AppendedRows, "write", written)
    code, reports = stream.work(spark, stream.job(*stream.plan()))
    assert (code, seen) == (0, [True] * 3), reports
    assert protected.rows() == ALL
    code, closed = fence(spark, stream, **stream.after(reports[2]))
    assert (code, closed.outcome) == (0, "fenced")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"user": "plain", "sslmode": "verify-full", "sslrootcert": "other-ca.crt"}, "certificate verify failed"),
        ({"user": "plain", "sslmode": "verify-full", "sslrootcert": "absent.crt"}, "root certificate file"),
        (
            {"user": "plain", "host": "localhost", "sslmode": "verify-full", "sslrootcert": "own-ca.crt"},
            "does not match host name",
        ),
        ({"user": "plain", "sslmode": "disable"}, "no pg_hba.conf entry"),
        ({"user": "loader", "password": "wrong"}, "password authentication failed"),
        ({"user": "loader"}, "no password supplied"),
    ],
    ids=["authority", "no file", "host", "no TLS", "password", "no password"],
)
def test_a_connection_that_is_not_trusted_is_refused_and_the_error_says_why(
    spark, stream, protected, certificates, given, says
):
    if "sslrootcert" in given:
        given = {**given, "sslrootcert": str(certificates / given["sslrootcert"])}
    grant("pg", protected.parameters(**given))
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.reason, report.retryable) == (11, "SINK_UNSUITABLE", False), report
    assert "the database cannot be connected to" in report.error_message
    assert says in report.error_message
    assert "Correct " in report.error_message
    assert protected.rows() == []
    code, closed = fence(spark, stream)
    assert (code, closed.reason) == (11, "SINK_UNSUITABLE")
    assert "wrong" not in report.error_message + closed.error_message


def test_a_server_without_tls_is_refused_by_a_connection_that_needs_it(spark, stream, database):
    grant("pg", database.parameters(sslmode="require"))
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.reason) == (11, "SINK_UNSUITABLE")
    assert "Correct sslmode and sslrootcert of the connection" in report.error_message
    assert database.rows() == []


@pytest.fixture(scope="module")
def foreign_server() -> Iterator[PostgresServer]:
    """A server that answers in German."""
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-"))
    server = PostgresServer(folder, "fds", "lc_messages=C.utf8")
    rules = "host all fds all trust\nhost all loader all scram-sha-256\n"
    (folder / "data" / "pg_hba.conf").write_text(rules)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # gettext translates by this list in any locale but C
            patch.setenv("LANGUAGE", "de")
            server.start()
        Database(server, "postgres").run("CREATE ROLE loader LOGIN SUPERUSER PASSWORD 'right'")
        yield server
    finally:
        server.stop(FAST)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("given", "state", "advice"),
    [
        ({"user": "loader", "password": "wrong"}, "28P01", "Correct the login"),
        ({"user": "loader"}, "28P01", "Correct the login"),
        ({"user": "nobody"}, "28000", "Correct the login"),
        ({"dbname": "absent"}, "3D000", "Correct the database"),
    ],
    ids=["password", "no password", "role", "database"],
)
def test_a_refused_connection_is_recognized_in_every_language(spark, stream, foreign_server, given, state, advice):
    import psycopg

    database = Database(foreign_server, "postgres")
    if psycopg.pq.version() < 180000:
        pytest.skip("libpq before 18 does not show the SQLSTATE of a refused connection")
    with database.connection() as connection, pytest.raises(psycopg.Error) as error:
        connection.execute("SELECT 1 / 0")
    if "division by zero" in str(error.value):
        pytest.skip("the server has no messages in German")
    grant("pg", database.parameters(**given))
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.reason, report.retryable) == (11, "SINK_UNSUITABLE", False), report
    assert f"the database cannot be connected to ({state}: " in report.error_message
    assert advice in report.error_message
    assert "wrong" not in report.error_message
