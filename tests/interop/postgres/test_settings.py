"""What a transaction of FDS sets leaves functions of the database as they are; no Spark is needed."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.sink.postgres_account import Account

LOG = "CREATE FUNCTION public.log() RETURNS trigger LANGUAGE plpgsql AS"
BODY = "'BEGIN INSERT INTO seen VALUES (NEW.id, lower(''A'')); RETURN NEW; END'"


@pytest.mark.parametrize("path", ["audit, public", "''", None], ids=["of the database", "empty", "default"])
def test_a_trigger_finds_its_tables_as_with_other_writers(database, path):
    place = "public" if path is None else "audit"
    database.run("CREATE SCHEMA audit")
    database.run(f"CREATE TABLE {place}.seen (id bigint, name text)")
    body = BODY if path != "''" else BODY.replace("seen", "audit.seen")
    database.run(f"{LOG} {body}; CREATE TRIGGER t BEFORE INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION log()")
    # it must not take the place of PostgreSQL's own
    database.run("CREATE FUNCTION audit.lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''no'''")
    database.run("CREATE FUNCTION audit.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    if path is not None:
        database.run(f"ALTER DATABASE {database.name} SET search_path = {path}")
    with database.connection() as connection, connection.transaction():
        account = Account(connection, "fds", ("public", "orders"))
        account.begin(lock_seconds=1)
        assert not account.is_standby()
        connection.execute("INSERT INTO public.orders VALUES (1, 'a', 0)")
    assert database.run(f"SELECT * FROM {place}.seen") == [(1, "a")]
