"""Filters on hostile values: what a stream with `where` loads is what Spark finds in the table.

The tables are of Spark, of delta-rs, or of a hand that writes a log as others do. Spark evaluates each filter on the
whole table, without its statistics.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pyarrow as pa

from tests.adversary.kinds_runs import LIMITS
from tests.adversary.play import kind
from tests.adversary.scene import Scene, Stream, VerdictError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZONES: Final = (
    "UTC", "America/New_York", "Asia/Tokyo", "Europe/Amsterdam", "Africa/Monrovia", "Asia/Kolkata", "Pacific/Apia",
)  # fmt: skip
_TEXTS: Final = (
    "", "a", "b", "it's", 'say "no"', "a%20b", "%C3%A9", "é", "a=b/c:d", "null", "NULL", " ", "a ", "x" * 40, "x" * 33,
    "__HIVE_DEFAULT_PARTITION__", "2024-01-01", "𝄞", "\uffee", "back\\slash", "tab\there", "#?&+", "Z", "0",
)  # fmt: skip
_DAYS: Final = (
    "0001-01-01", "1582-10-04", "1582-10-15", "1899-12-31", "1900-01-01", "1969-12-31", "1970-01-01", "2024-02-29",
    "9999-12-31", "+10000-01-01", "+12345-06-07",
)  # fmt: skip
_TIMES: Final = (
    "0001-01-01 00:00:00", "1582-10-10 12:00:00", "1899-12-31 23:59:59.999999", "1930-01-01 00:40:28",
    "1937-06-30 23:40:00.5", "1971-12-31 23:15:30", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00",
    "2024-01-01 20:00:00", "2024-01-02 01:00:00", "2024-03-10 07:00:00", "2024-11-03 06:30:00.123456",
    "2024-11-03 06:30:00.123457", "9999-12-31 23:59:59.999999", "+10000-01-01 00:00:00",
)  # fmt: skip
_WHOLE: Final = (
    "0", "1", "-1", "1830000000000000129", "1830000000000000128", "1830000000000000000", "9007199254740993",
    "9007199254740992", "9223372036854775807", "-9223372036854775808",
)  # fmt: skip
_FRACTIONS: Final = (
    "0", "0.1", "-0.1", "12345678901234567.89", "12345678901234567.88", "12345678901234568.00", "-99999999999999999.99",
    "0.30", "1830000000000000.29",
)  # fmt: skip
#: delta-rs writes damaged partition values of them, or folders with too long names.
_NOT_IN_DELTA_RS: Final = ("'-0.1' AS DECIMAL", "'-99999999999999999.99'", "'1e308'", "'5e-324'")
_FLOATS: Final = ("0.0", "-0.0", "0.1", "NaN", "Infinity", "-Infinity", "1e308", "5e-324", "16777217", "-1.5")


@dataclass(frozen=True)
class Value:
    """A value: in Spark's SQL, in a filter of FDS (``None``: not there), and in Python (:data:`ABSENT`: not there)."""

    sql: str
    asked: str | None
    python: Any


ABSENT: Final = object()


def _text(raw: str) -> Value:
    escaped = raw.replace("\\", "\\\\").replace("'", "\\'")
    asked = None if "\\" in raw else "'" + raw.replace("'", "''") + "'"
    return Value(f"'{escaped}'", asked, raw)


def _time(name: str, zone: str) -> Callable[[str], Value]:
    def value(raw: str) -> Value:
        python: Any = ABSENT
        if not raw.startswith("+"):
            python = date.fromisoformat(raw) if name == "DATE" else datetime.fromisoformat(raw)
            python = python.replace(tzinfo=UTC) if zone else python
        asked = "TIMESTAMP" if name == "TIMESTAMP_NTZ" else name
        return Value(f"{name} '{raw}{zone}'", None if raw.startswith("+") else f"{asked} '{raw}{zone}'", python)

    return value


def _number(type_: str, python: Callable[[str], Any]) -> Callable[[str], Value]:
    def value(raw: str) -> Value:
        is_plain = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", raw) is not None
        return Value(f"CAST('{raw}' AS {type_})", raw if is_plain else None, python(raw))

    return value


@dataclass(frozen=True)
class Type:
    """A type: its names in Spark and Arrow, and hostile values."""

    sql: str
    arrow: pa.DataType
    values: tuple[Value, ...]


def _typed(sql: str, arrow: pa.DataType, raw: tuple[str, ...], value: Callable[[str], Value]) -> Type:
    return Type(sql, arrow, tuple(map(value, raw)))


TYPES: Final = (
    _typed("STRING", pa.string(), _TEXTS, _text),
    _typed("STRING", pa.string(), _TEXTS, _text),
    _typed("DATE", pa.date32(), _DAYS, _time("DATE", "")),
    _typed("TIMESTAMP", pa.timestamp("us", "UTC"), _TIMES, _time("TIMESTAMP", "Z")),
    _typed("TIMESTAMP", pa.timestamp("us", "UTC"), _TIMES, _time("TIMESTAMP", "Z")),
    _typed("TIMESTAMP_NTZ", pa.timestamp("us"), _TIMES, _time("TIMESTAMP_NTZ", "")),
    _typed("DECIMAL(19,0)", pa.decimal128(19, 0), _WHOLE, _number("DECIMAL(19,0)", Decimal)),
    _typed("DECIMAL(19,2)", pa.decimal128(19, 2), _FRACTIONS, _number("DECIMAL(19,2)", Decimal)),
    _typed("BIGINT", pa.int64(), _WHOLE, _number("BIGINT", int)),
    _typed("DOUBLE", pa.float64(), _FLOATS, _number("DOUBLE", float)),
    _typed("BOOLEAN", pa.bool_(), ("true", "false"), lambda raw: Value(raw, raw, raw == "true")),
)
NULL: Final = Value("NULL", None, None)


@dataclass
class Hostile:
    """A table with the columns id, p (it is partitioned by p) and c, in a session of Spark."""

    scene: Scene
    path: Path
    session: Any
    types: dict[str, Type]
    next_id: int = 0
    used: dict[str, list[Value]] = field(default_factory=lambda: {"p": [], "c": []})

    def sql(self, statement: str) -> list[Any]:
        self.scene.note(f"sql: {statement[:300]}")
        return list(self.session.sql(statement).collect())

    def draw(self, name: str, *, has_python: bool) -> Value:
        rng = self.scene.rng
        pool = [one for one in self.types[name].values if not has_python or one.python is not ABSENT]
        if has_python and name == "p":
            pool = [one for one in pool if not any(text in one.sql for text in _NOT_IN_DELTA_RS)]
        value = NULL if rng.random() < 0.15 else rng.choice(pool)
        self.used[name].append(value)
        return value

    def by_spark(self) -> None:
        """Create the table, or append, with Spark."""
        if self.next_id == 0:
            columns = f"id BIGINT, p {self.types['p'].sql}, c {self.types['c'].sql}"
            self.sql(f"CREATE TABLE delta.`{self.path}` ({columns}) USING delta PARTITIONED BY (p)")
        lines = []
        for _ in range(self.scene.rng.randint(1, 4)):
            p, c = (self.draw(name, has_python=False) for name in ("p", "c"))
            lines.append(f"({self.next_id}, {p.sql}, {c.sql})")
            self.next_id += 1
        self.sql(f"INSERT INTO delta.`{self.path}` VALUES {', '.join(lines)}")

    def by_delta_rs(self) -> None:
        """Create the table, or append, with delta-rs."""
        count = self.scene.rng.randint(1, 4)
        columns: dict[str, Any] = {"id": pa.array(range(self.next_id, self.next_id + count), pa.int64())}
        for name, type_ in self.types.items():
            values = [self.draw(name, has_python=True).python for _ in range(count)]
            columns[name] = pa.array(values, type_.arrow)
        self.scene.note(f"delta-rs writes {[column.to_pylist() for column in columns.values()]}")
        deltalake.write_deltalake(self.path, pa.table(columns), mode="append", partition_by=["p"])
        self.next_id += count

    def by_hand(self) -> None:
        """Rewrite the newest commit as another writer may have written it."""
        rng = self.scene.rng
        commit = max((self.path / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        how = rng.choice(("zones of statistics", "statistics as numbers", "no statistics", "empty for NULL"))
        for add in (line["add"] for line in lines if "add" in line):
            stats = json.loads(add["stats"]) if add.get("stats") else {}
            if how == "no statistics":
                add.pop("stats", None)
                continue
            if how == "empty for NULL" and self.types["p"].sql != "STRING":
                add["partitionValues"] = {key: value or "" for key, value in add["partitionValues"].items()}
            for kind_of in ("minValues", "maxValues"):
                for name, value in stats.get(kind_of, {}).items():
                    is_time = self.types.get(name, TYPES[-1]).sql == "TIMESTAMP" and isinstance(value, str)
                    if how == "zones of statistics" and is_time:
                        stats[kind_of][name] = re.sub(r"(Z|[+-]\d\d:\d\d)$", "", value)
                    elif how == "statistics as numbers" and self.types.get(name, TYPES[-1]).sql.startswith("DEC"):
                        stats[kind_of][name] = float(value)
            if stats:
                add["stats"] = json.dumps(stats)
        commit.write_text("\n".join(map(json.dumps, lines)) + "\n")
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
        self.scene.note(f"by hand: {how}")

    def filter(self, names: tuple[str, ...], depth: int = 2) -> tuple[str, str]:
        """Return a random filter as FDS and as Spark reads it."""
        rng = self.scene.rng
        if depth and rng.random() < 0.45:
            (one, one_sql), (two, two_sql) = self.filter(names, depth - 1), self.filter(names, depth - 1)
            word = rng.choice(("AND", "OR"))
            return f"({one} {word} {two})", f"({one_sql} {word} {two_sql})"
        if depth and rng.random() < 0.2:
            one, one_sql = self.filter(names, depth - 1)
            return f"NOT ({one})", f"NOT ({one_sql})"
        name = rng.choice(names)
        if rng.random() < 0.2:
            words = rng.choice(("IS NULL", "IS NOT NULL"))
            return f"{name} {words}", f"{name} {words}"
        used = [one for one in self.used[name] if one.asked is not None]
        pool = used if used and rng.random() < 0.8 else [one for one in self.types[name].values if one.asked]
        values = rng.choices(pool, k=rng.randint(1, 3))
        if len(values) > 1:
            no = rng.choice(("", "NOT "))
            asked, there = ", ".join(str(one.asked) for one in values), ", ".join(one.sql for one in values)
            return f"{name} {no}IN ({asked})", f"{name} {no}IN ({there})"
        sign = rng.choice(("=", "!=", "<>", "<", "<=", ">", ">="))
        return f"{name} {sign} {values[0].asked}", f"{name} {sign} {values[0].sql}"

    def rows(self, path: Path, where: str) -> Counter[tuple[Any, ...]]:
        """Return rows as texts; Python has no year 10000."""
        statement = f"SELECT id, CAST(p AS STRING), CAST(c AS STRING) FROM delta.`{path}` WHERE {where}"
        return Counter(tuple(row) for row in self.sql(statement))


def session_of(scene: Scene, zone: str) -> Any:
    """Return a session of the scenario alone, which trusts no statistics."""
    import warnings

    from pyspark.sql.connect.session import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = SparkSession.builder.remote(scene.servers.get().url).create()
    scene.cleanups.append(session.stop)
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.databricks.delta.stats.skipping", "false")
    scene.note(f"session in {zone}")
    return session


@kind
def hostile_filters(scene: Scene) -> None:
    """Random filters on empty texts, quotes, far years, large decimals and times, in any time zone, by any writer."""
    rng = scene.rng
    zone = rng.choice(ZONES)
    types = {name: rng.choice(TYPES) for name in ("p", "c")}
    table = Hostile(scene, scene.root / "orders", session_of(scene, zone), types)
    scene.note(f"p {types['p'].sql}, c {types['c'].sql}")
    writers = rng.choice(((table.by_spark,), (table.by_delta_rs,), (table.by_spark, table.by_delta_rs)))
    is_edited = rng.random() < 0.4
    for _ in range(rng.randint(3, 5)):
        rng.choice(writers)()
        if is_edited and rng.random() < 0.6:
            table.by_hand()
    if rng.random() < 0.3:
        deltalake.DeltaTable(table.path).create_checkpoint()
        scene.note("a checkpoint")
    for number in range(rng.randint(3, 4)):
        asked, there = table.filter(rng.choice((("p",), ("p", "p", "c"), ("p", "p", "c"))))
        statistics = rng.choice(("", "", "stage_statistics=false"))
        more = (rng.choice(("", "starting_version=0")), statistics, rng.choice(LIMITS))
        stream = Stream(
            scene,
            table.path,
            name=f"filtered{number}",
            sink=scene.root / f"sink{number}",
            checkpoint=scene.root / f"checkpoint{number}.json",
            arguments=("--conf", f"spark.sql.session.timeZone={zone}"),
            options=(f"where={asked}", *filter(None, more)),
        )
        judge_filter(table, stream, there)


def judge_filter(table: Hostile, stream: Stream, there: str) -> None:
    """Load a stream with a filter, and compare with the rows that Spark finds."""
    scene = table.scene
    try:
        want = table.rows(table.path, there)
    except Exception as error:  # noqa: BLE001 - a session with ANSI mode cannot cast a value
        scene.note(f"Spark refuses: {str(error)[:200]}")
        stream.run()
        return
    said = stream.run()
    if said.is_refused:
        if "WHERE_INVALID" in said.said or "expected" in said.said:
            # the literal is not of the column's type, or columns of this type are not compared
            return
        raise VerdictError("stuck", f"Spark reads the table with {there}, and the run refuses: {said}")
    has_sink = (stream.sink / "_delta_log").exists()
    found = table.rows(stream.sink, "true") if has_sink else Counter[tuple[Any, ...]]()
    lost, extra = want - found, found - want
    scene.note(f"verdict: {sum(found.values())} rows by {there}, {len(lost)} lost, {len(extra)} too many")
    if lost or extra:
        shown = f"missing {sorted(map(str, lost))[:4]}, not asked for {sorted(map(str, extra))[:4]}"
        raise VerdictError(
            "lost" if lost else "doubled",
            f"{' '.join(stream.options)}: {shown}",
            lost=len(lost),
            doubled=len(extra),
        )
