"""What a PostgreSQL database has of a stream: the account beside the rows, for the driver and for Airflow.

The account is three tables in a schema of the user's choice. ``targets`` has each table that a stream has written to:
a table that is dropped and created again has another oid, and so another id here. ``streams`` has the epoch of each
stream in a target, and counts its commits there: that number is the "version of the sink" in reports and ledger.
``batches`` has each commit of a stream: a batch, or the fence of an epoch as batch -1; that of a data interval names
its interval, and has its generation as ``epoch``. A row of it is written in the
transaction that writes the rows, so that one cannot be there without the other. A fence that removes rows has ``rows``
or ``all`` as its digest, the number of removed rows, and the source version from which they were removed.

Standard library, Python 3.9 syntax; :mod:`.postgres_connection` opens the connections.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple
from uuid import uuid4

from airflow_provider_fds.sinks.postgres import quoted

#: Batch of a fence.
FENCE = -1

#: The tables of the account.
_DDL = (
    """CREATE TABLE IF NOT EXISTS {targets} (id uuid PRIMARY KEY, oid bigint NOT NULL UNIQUE, name text NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS {streams} (
        uuid uuid, target uuid, name text NOT NULL, epoch bigint NOT NULL, version bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (uuid, target)
    )""",
    """CREATE TABLE IF NOT EXISTS {batches} (
        uuid uuid, target uuid, interval text DEFAULT '', epoch bigint, batch bigint,
        digest text NOT NULL, rows bigint NOT NULL, "end" text NOT NULL, source text, first_version bigint,
        last_version bigint, version bigint NOT NULL, attempt text NOT NULL,
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(), time timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (uuid, target, interval, epoch, batch)
    )""",
)
#: The first version with ``client_connection_check_interval``.
OLDEST_SERVER = 140000


@dataclass(frozen=True)
class Target:
    """The table that a stream writes to.

    Attributes:
        oid: Its oid in the database.
        id: What the account knows it by; ``None`` if no stream has written to it.
    """

    oid: int
    id: Optional[str]


@dataclass(frozen=True)
class Entry:
    """A commit of a stream in the account: a batch, or a fence.

    Attributes:
        version: Number of the commit, counted per stream and target from 1.
        first_version: First version of the source in the batch, or from which a fence removed rows.
        digest: Of the manifest; what a fence removed, or empty.
        rows: Rows that were written, or that a fence removed.
        end: Where the batch ends (inclusive), offset JSON; empty for a fence.
        last_version: Last version of the source in the batch.
        interval: Data interval of the batch, whose generation is the epoch; empty if the stream reads by offset.
    """

    epoch: int
    batch: int
    digest: str
    rows: int
    end: str
    version: int
    attempt: str
    first_version: Optional[int] = None
    last_version: Optional[int] = None
    interval: str = ""


@dataclass(frozen=True)
class Namesake:
    """Another stream of the same name in the account.

    Attributes:
        uuid: Its uuid.
        has_loaded: Whether it has loaded a batch; else it is only registered.
        interval: One of its data intervals; empty if it has loaded none, or reads by offset.
    """

    uuid: str
    has_loaded: bool
    interval: str


class Account:
    """The account in a database, by a connection with an open transaction or none.

    Args:
        connection: The connection.
        schema: Schema of the account.
        table: Schema and name of the target.
    """

    def __init__(self, connection: Any, schema: str, table: Tuple[str, str]) -> None:
        self._connection = connection
        self._schema = schema
        self._table = table

    def begin(self, *, lock_seconds: float) -> None:
        """Set what the transaction relies on, for this transaction only: a pooler gives the session to others."""
        run = self._connection.execute
        # after the wait for a lock, each statement must see what the other transaction committed
        run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for name, value in (
            # a role may have turned it off: a crash then takes commits back that were reported
            ("synchronous_commit", "on"),
            ("lock_timeout", f"{round(lock_seconds * 1000)}ms"),
            ("idle_in_transaction_session_timeout", "10min"),
            ("statement_timeout", "0"),
            # otherwise the backend of a driver that was killed first ends its statement
            ("client_connection_check_interval", "1s"),
            ("TimeZone", "UTC"),
            ("DateStyle", "ISO"),
        ):
            run("SELECT set_config(%s, %s, true)", (name, value))
        # nothing takes the place of what PostgreSQL has, and triggers find what they find for other writers
        path = "concat_ws(', ', 'pg_catalog', nullif(current_setting('search_path'), ''))"
        run(f"SELECT set_config('search_path', {path}, true)")

    def problem(self) -> Optional[str]:
        """Return why this server cannot keep what it commits, or ``None`` if it can."""
        if self._connection.info.server_version < OLDEST_SERVER:
            return f"it is PostgreSQL {self._connection.info.server_version // 10000}; 14 or newer is needed"
        is_standby, read_only, fsync, pages = self._connection.execute(
            "SELECT pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('fsync'), "
            "current_setting('full_page_writes')"
        ).fetchone()
        if is_standby:
            return "it is a standby, which cannot be written to: connect to the primary (target_session_attrs)"
        if read_only == "on":
            return "default_transaction_read_only is on for the role or the database"
        off = [name for name, value in (("fsync", fsync), ("full_page_writes", pages)) if value != "on"]
        return f"{' and '.join(off)} is off: a crash can lose what was committed" if off else None

    def is_standby(self) -> bool:
        """Whether the server is a standby."""
        return self._one("SELECT pg_is_in_recovery()", ()) == (True,)

    def target(self) -> Optional[Target]:
        """Return the table, or ``None`` if there is none of this name that the role can see."""
        row = self._connection.execute(
            "SELECT c.oid::bigint FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            self._table,
        ).fetchone()
        if row is None:
            return None
        found = None
        if self.exists():
            found = self._one(f"SELECT id::text FROM {self._of('targets')} WHERE oid = %s", (row[0],))
        return Target(row[0], None if found is None else found[0])

    def exists(self) -> bool:
        """Whether the tables of the account are there."""
        row = self._one("SELECT to_regclass(%s)", (quoted(self._schema, "batches"),))
        return row is not None and row[0] is not None

    def create(self) -> None:
        """Create the account, in a transaction of its own, unless it is there."""
        if self.exists():
            self._connection.rollback()
            return
        # two that create a table at the same moment collide in the catalog, in spite of IF NOT EXISTS
        self._lock(f"account in {self._schema}")
        if self._one("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)) is None:
            self._connection.execute(f"CREATE SCHEMA {quoted(self._schema)}")
        names = {name: quoted(self._schema, name) for name in ("targets", "streams", "batches")}
        for statement in _DDL:
            self._connection.execute(statement.format(**names))
        self._connection.commit()

    def registered(self, target: Target) -> str:
        """Return the id of a target, which is registered in the transaction if it is new."""
        name = quoted(*self._table)
        self._connection.execute(
            f"INSERT INTO {self._of('targets')} (id, oid, name) VALUES (%s, %s, %s) ON CONFLICT (oid) DO NOTHING",
            (str(uuid4()), target.oid, name),
        )
        row = self._one(f"SELECT id::text FROM {self._of('targets')} WHERE oid = %s", (target.oid,))
        assert row is not None  # noqa: S101  # it was inserted, here or by the other transaction
        return str(row[0])

    def lock_name(self) -> None:
        """Keep others from creating a table of this name until the transaction ends."""
        self._lock(f"table {quoted(*self._table)}")

    def lock_target(self, target: str) -> None:
        """Keep other streams from registering for the target until the transaction ends."""
        self._one(f"SELECT 1 FROM {self._of('targets')} WHERE id = %s FOR UPDATE", (target,))

    def lock(self, uuid: str, target: str) -> Optional[Tuple[int, int]]:
        """Lock the stream in the target until the transaction ends; return its epoch and version, if it is known.

        The advisory lock shows who holds the stream, for :meth:`holders`; the row's lock is what counts.
        """
        self._lock(_key(uuid, target))
        row = self._one(
            f"SELECT epoch, version FROM {self._of('streams')} WHERE uuid = %s AND target = %s FOR UPDATE",
            (uuid, target),
        )
        return None if row is None else (row[0], row[1])

    def lock_interval(self, uuid: str, target: str, interval: str) -> Optional[Tuple[int, int]]:
        """Lock a data interval until the transaction ends; return its generation, 0 if it has none, and the version.

        ``None`` if the stream is new in the target. Other intervals of the stream are written at the same time.
        """
        self._lock(_key(uuid, target, interval))
        row = self._one(
            f"SELECT (SELECT max(epoch) FROM {self._of('batches')} WHERE uuid = s.uuid AND target = s.target AND "
            f"interval = %s), version FROM {self._of('streams')} s WHERE uuid = %s AND target = %s",
            (interval, uuid, target),
        )
        return None if row is None else (row[0] or 0, row[1])

    def version(self, uuid: str, target: str) -> int:
        """Lock the stream's row until the transaction ends; return the number of its newest commit."""
        row = self._one(
            f"SELECT version FROM {self._of('streams')} WHERE uuid = %s AND target = %s FOR UPDATE", (uuid, target)
        )
        assert row is not None  # noqa: S101  # it is registered
        return int(row[0])

    def holders(self, uuid: str, target: str, interval: Optional[str] = None) -> List[int]:
        """Return the backends that hold the lock of the stream, or of its data interval."""
        rows = self._connection.execute(
            "WITH k AS (SELECT hashtextextended(%s, 0) AS key) SELECT l.pid FROM pg_locks l, k "
            "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
            "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND l.classid::bigint = ((k.key >> 32) & 4294967295) AND l.objid::bigint = (k.key & 4294967295) "
            "AND l.pid <> pg_backend_pid()",
            (_key(uuid, target, interval),),
        ).fetchall()
        return [row[0] for row in rows]

    def end(self, pid: int) -> None:
        """End a backend, and wait for it."""
        self._connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    def add_stream(self, uuid: str, target: str, name: str, epoch: int) -> None:
        """Register a stream for a target."""
        self._connection.execute(
            f"INSERT INTO {self._of('streams')} (uuid, target, name, epoch) VALUES (%s, %s, %s, %s) "
            # two intervals of a new stream
            "ON CONFLICT DO NOTHING",
            (uuid, target, name, epoch),
        )

    def newest_stream(self, target: str, name: str, uuid: Optional[str] = None) -> Optional[str]:
        """Return the uuid of the stream of this name, or of this uuid, that has loaded last, or ``None``."""
        row = self._one(
            f"SELECT uuid::text FROM {self._of('batches')} b JOIN {self._of('streams')} s USING (uuid, target) "
            f"WHERE target = %s AND batch <> {FENCE} AND s.name = %s AND coalesce(uuid::text = %s, true) "
            "ORDER BY b.time DESC LIMIT 1",
            (target, name, uuid),
        )
        return None if row is None else str(row[0])

    def namesake(self, uuid: str, target: str, name: str, others: Tuple[str, ...]) -> Optional[Namesake]:
        """Return another stream of this name in the target, first one that has loaded a batch, or ``None``."""
        row = self._one(
            f"SELECT s.uuid::text, count(b.batch) > 0, coalesce(max(b.interval), '') FROM {self._of('streams')} s "
            f"LEFT JOIN {self._of('batches')} b ON b.uuid = s.uuid AND b.target = s.target AND b.batch <> {FENCE} "
            "WHERE s.target = %s AND s.name = %s AND s.uuid <> %s AND NOT s.uuid::text = ANY(%s) "
            "GROUP BY s.uuid ORDER BY 2 DESC, 1 LIMIT 1",
            (target, name, uuid, list(others)),
        )
        return None if row is None else Namesake(*row)

    def registration(self, target: str, name: str, uuid: Optional[str] = None) -> Optional[Tuple[str, int]]:
        """Return the uuid of a stream of this name, or of this uuid, without a batch in the target, or ``None``.

        With it comes the epoch of the stream's newest fence, 0 without one.
        """
        row = self._one(
            f"SELECT s.uuid::text, coalesce(max(b.epoch), 0) FROM {self._of('streams')} s "
            f"LEFT JOIN {self._of('batches')} b ON b.uuid = s.uuid AND b.target = s.target "
            "WHERE s.target = %s AND s.name = %s AND coalesce(s.uuid::text = %s, true) "
            f"GROUP BY s.uuid HAVING coalesce(max(b.batch), {FENCE}) = {FENCE} ORDER BY 2 DESC, 1 LIMIT 1",
            (target, name, uuid),
        )
        return None if row is None else (str(row[0]), int(row[1]))

    def overlap(
        self, uuid: str, target: str, source: str, versions: Tuple[int, int], others: Tuple[str, ...]
    ) -> Optional[Tuple[str, int, int]]:
        """Return name and versions of another stream's batch of the same source table with one of the versions."""
        row = self._one(
            f"SELECT s.name, b.first_version, b.last_version FROM {self._of('batches')} b "
            f"JOIN {self._of('streams')} s USING (uuid, target) WHERE b.target = %s AND b.uuid <> %s AND b.source = %s "
            "AND NOT b.uuid::text = ANY(%s) AND b.first_version <= %s AND b.last_version >= %s LIMIT 1",
            (target, uuid, source, list(others), versions[1], versions[0]),
        )
        return None if row is None else (row[0], row[1], row[2])

    def of_others(
        self, uuid: str, target: str, versions: Tuple[int, int], others: Tuple[str, ...]
    ) -> Optional[Tuple[str, int, int]]:
        """Return name and versions of another stream's batch, of any source, that may have a version's rows."""
        row = self._one(
            f"SELECT s.name, b.first_version, b.last_version FROM {self._of('batches')} b "
            f"JOIN {self._of('streams')} s USING (uuid, target) WHERE b.target = %s AND b.uuid <> %s "
            f"AND b.batch <> {FENCE} AND b.rows > 0 AND NOT b.uuid::text = ANY(%s) "
            "AND coalesce(b.first_version, 0) <= %s AND coalesce(b.last_version, %s) >= %s LIMIT 1",
            (target, uuid, list(others), versions[1], versions[0], versions[0]),
        )
        return None if row is None else (row[0], row[1], row[2])

    def with_versions(self, uuid: str, target: str, versions: Tuple[int, int], since: int = 0) -> List[Entry]:
        """Return the stream's commits after ``since`` (exclusive) that have one of the versions, oldest first."""
        return self._entries(
            f"batch <> {FENCE} AND version > %s AND first_version <= %s AND last_version >= %s",
            (uuid, target, since, versions[1], versions[0]),
        )

    def other_stream(self, uuid: str, target: str) -> Optional[str]:
        """Return the name of another stream in the target, or ``None``."""
        row = self._one(
            f"SELECT name FROM {self._of('streams')} WHERE target = %s AND uuid <> %s LIMIT 1", (target, uuid)
        )
        return None if row is None else str(row[0])

    def entry(self, uuid: str, target: str, epoch: int, batch: int, interval: Optional[str] = None) -> Optional[Entry]:
        """Return a commit of the stream, or ``None``."""
        values = (uuid, target, epoch, batch, interval or "")
        found = self._entries("epoch = %s AND batch = %s AND interval = %s", values)
        return found[0] if found else None

    def at(self, uuid: str, target: str, version: int) -> Optional[Entry]:
        """Return the commit of the stream with this number, or ``None``."""
        found = self._entries("version = %s", (uuid, target, version))
        return found[0] if found else None

    def since(self, uuid: str, target: str, version: int) -> List[Entry]:
        """Return the commits of the stream after a version (exclusive), oldest first."""
        return self._entries("version > %s", (uuid, target, version))

    def newest(self, uuid: str, target: str, interval: Optional[str] = None) -> Optional[Entry]:
        """Return the newest commit of the stream, or of its data interval, or ``None``."""
        values = (uuid, target, interval or "")
        found = self._entries("interval = %s", values, "ORDER BY epoch DESC, batch DESC LIMIT 1")
        return found[0] if found else None

    def record(
        self,
        uuid: str,
        target: str,
        entry: Entry,
        source: Optional[str] = None,
        versions: Tuple[Optional[int], Optional[int]] = (None, None),
    ) -> None:
        """Record a commit of the stream, and that it is in the entry's epoch, unless it reads data intervals."""
        self._connection.execute(
            f'INSERT INTO {self._of("batches")} (uuid, target, interval, epoch, batch, digest, rows, "end", source, '
            f"first_version, last_version, version, attempt) VALUES ({', '.join(['%s'] * 13)})",
            (uuid, target, entry.interval, entry.epoch, entry.batch, entry.digest, entry.rows, entry.end, source,
             *versions, entry.version, entry.attempt),
        )  # fmt: skip
        self._connection.execute(
            f"UPDATE {self._of('streams')} SET epoch = CASE WHEN %s = '' THEN %s ELSE epoch END, version = %s "
            "WHERE uuid = %s AND target = %s",
            (entry.interval, entry.epoch, entry.version, uuid, target),
        )

    def _entries(self, where: str, values: Tuple[Any, ...], order: str = "ORDER BY version") -> List[Entry]:
        rows = self._connection.execute(
            'SELECT epoch, batch, digest, rows, "end", version, attempt, first_version, last_version, interval '
            f"FROM {self._of('batches')} WHERE uuid = %s AND target = %s AND {where} {order}",
            values,
        ).fetchall()
        return [Entry(*row) for row in rows]

    def _lock(self, key: str) -> None:
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (key,))

    def _one(self, statement: str, values: Tuple[Any, ...]) -> Optional[Tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchone()  # type: ignore[no-any-return]

    def _of(self, table: str) -> str:
        # psycopg looks for placeholders in statements
        return quoted(self._schema, table).replace("%", "%%")


def _key(uuid: str, target: str, interval: Optional[str] = None) -> str:
    return f"fds {uuid} {target}" + (f" {interval}" if interval else "")
