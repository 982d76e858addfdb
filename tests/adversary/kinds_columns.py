"""Column mapping: names of the source come to mean other columns, between the batches of sinks that know names only.

Each value names its column by the physical name, and its row: so a sink that has a value in another column shows it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.adversary.kinds_airflow import DagStream, name_of, option_of
from tests.adversary.kinds_runs import LIMITS, kill_a_run
from tests.adversary.play import kind
from tests.adversary.scene import Outcome, Scene, Stream, VerdictError
from tests.adversary.source import Source
from tests.adversary.warm import sql
from tests.adversary.ways import follow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PHYSICAL = "delta.columnMapping.physicalName"
_STATEMENT = re.compile(r"ALTER TABLE delta\.`[^`]+` (?:SET|DROP|RENAME|ADD) [^;\n]+(?=;)")


def fields_of(path: Path) -> list[dict[str, Any]]:
    """Return the columns of a table, from the newest schema in its log."""
    found: list[dict[str, Any]] = []
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            if "metaData" in (action := json.loads(line)):
                found = json.loads(action["metaData"]["schemaString"])["fields"]
    return found


def leaves_of(path: Path) -> dict[str, str]:
    """Return the physical name of each column and nested field by its name in SQL."""
    found = {}
    for column in fields_of(path):
        inner = column["type"]["fields"] if isinstance(column["type"], dict) else [None]
        for one in inner:
            last = one or column
            name = f"`{column['name']}`" + (f".`{one['name']}`" if one else "")
            found[name] = last["metadata"].get(_PHYSICAL, last["name"])
    return found


@dataclass
class Mapped:
    """A table with column mapping: id, k, v, x and s, a struct of a and b; all of them text."""

    scene: Scene
    path: Path
    rows: int = 0
    gone: list[str] = field(default_factory=list)
    generation: int = 0

    def sql(self, statement: str) -> None:
        sql(self.scene, statement.format(t=f"delta.`{self.path}`"))

    def create(self, *, partitioned: bool) -> None:
        self.sql(
            "CREATE TABLE {t} (id STRING, k STRING, v STRING, x STRING, s STRUCT<a: STRING, b: STRING>) USING delta "
            + ("PARTITIONED BY (k) " if partitioned else "")
            + "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
        )
        self.insert(4)

    def insert(self, number: int = 0) -> None:
        """Append rows."""
        lines = []
        for _ in range(number or self.scene.rng.randint(1, 3)):
            text = {name: f"'{physical}:{self.rows}'" for name, physical in leaves_of(self.path).items()}
            inner = [f"'{name[5:-1]}', {value}" for name, value in text.items() if name.startswith("`s`.")]
            values = [value for name, value in text.items() if "." not in name]
            place = next(place for place, one in enumerate(fields_of(self.path)) if one["name"] == "s")
            values.insert(place, f"named_struct({', '.join(inner)})")
            lines.append(f"({', '.join(values)})")
            self.rows += 1
        self.sql("INSERT INTO {t} VALUES " + ", ".join(lines))

    def change_a_row(self) -> None:
        """Update a value of a row, or delete the row."""
        rng, leaves = self.scene.rng, leaves_of(self.path)
        row = rng.randrange(self.rows)
        where = f"WHERE `id` = '{leaves['`id`']}:{row}'"
        if rng.random() < 0.2:
            self.sql("DELETE FROM {t} " + where)
            return
        self.generation += 1
        name = rng.choice([one for one in leaves if one not in ("`id`", "`k`")])
        self.sql(f"UPDATE {{t}} SET {name} = '{leaves[name]}:{row}:{self.generation}' {where}")

    def rename(self, old: str, new: str) -> None:
        self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO `{new}`")

    def change_columns(self, *, keys: bool) -> None:
        """Drop, add, rename or swap columns or nested fields."""
        rng = self.scene.rng
        names = list(leaves_of(self.path))
        nested = rng.random() < 0.4
        inner = [name for name in names if name.startswith("`s`.")]
        free = [name for name in names if "." not in name and name not in ("`id`", "`k`")]
        pool = inner if nested else free
        outer = "`s`." if nested else ""
        step = rng.choice(("drop and add", "drop and rename", "swap", "swap", "rename", "drop", "add"))
        if keys and step == "swap" and rng.random() < 0.5:
            pool, outer = ["`id`", rng.choice(("`k`", "`k`", *free))], ""
        if len(pool) < 2:
            step = "add"
        if step == "add":
            self._add(outer, rng.choice([*self.gone, f"n{rng.randrange(3)}"]))
            return
        one, other = rng.sample(pool, 2)
        last = one.rpartition(".")[2].strip("`")
        if step.startswith("drop"):
            self.sql(f"ALTER TABLE {{t}} DROP COLUMN {one}")
            self.gone.append(last)
            if step == "drop and add":
                self._add(outer, last)
            elif step == "drop and rename":
                self.rename(other, last)
        elif step == "rename":
            self.rename(one, f"r{rng.randrange(1000)}")
        else:
            self.rename(one, "spare")
            self.rename(other, last)
            self.rename(f"{outer}`spare`", other.rpartition(".")[2].strip("`"))

    def _add(self, outer: str, name: str) -> None:
        if f"{outer}`{name}`" not in leaves_of(self.path):
            self.sql(f"ALTER TABLE {{t}} ADD COLUMNS ({outer}`{name}` STRING)")


def put_right(scene: Scene, said: str) -> bool:
    """Run the statements on the sink that a refusal names."""
    found = list(dict.fromkeys(_STATEMENT.findall(said.replace("\\n", "\n"))))
    for statement in found:
        sql(scene, statement)
    return bool(found)


def by_row(scene: Scene, path: Path, where: str) -> tuple[Counter[str], dict[str, dict[str, str]]]:
    """Return how often each row is in a table, and its values by the names of the leaves."""
    names = list(leaves_of(path))
    names = [name for name in names if not name.startswith("`_")]
    times: Counter[str] = Counter()
    values: dict[str, dict[str, str]] = {}
    for row in sql(scene, f"SELECT {', '.join(names)} FROM delta.`{path}` {where}"):
        mine = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        number = next(iter(mine.values())).split(":")[1]
        times[number] += 1
        values[number] = mine
    return times, values


def wrong_values(
    wanted: dict[str, dict[str, str]], values: dict[str, dict[str, str]], names: set[str], *, has_elsewhere: bool
) -> list[tuple[str, str, str | None, str | None]]:
    """Return (row, column, the source's value, the sink's value) wherever they differ, for rows that both have.

    Args:
        wanted: The source's values that are not NULL, by row and column.
        values: The sink's.
        names: The source's columns.
        has_elsewhere: See :func:`judge_columns`.
    """
    return [
        (row, name, wanted[row].get(name), values[row].get(name))
        for row in wanted.keys() & values.keys()
        for name in sorted(names)
        if wanted[row].get(name) != values[row].get(name)
        and not (has_elsewhere and name not in values[row] and wanted[row][name] in values[row].values())
    ]


def judge_columns(scene: Scene, source: Mapped, sink: Path, *, has_elsewhere: bool, where: str = "") -> None:
    """The sink has the source's rows, each value under the name that its column has in the source now.

    Args:
        scene: The scenario.
        source: The source.
        sink: The sink.
        has_elsewhere: Whether earlier rows may have a value under another name, where the sink then has NULL: a sink
            that got the new name as another column.
        where: Which rows of the sink count.
    """
    want, wanted = by_row(scene, source.path, "")
    found, values = by_row(scene, sink, where)
    lost, doubled = want - found, found - want
    wrong = wrong_values(wanted, values, set(leaves_of(source.path)), has_elsewhere=has_elsewhere)
    scene.note(
        f"verdict: {sum(found.values())} rows, {len(lost)} lost, {len(doubled)} too many, {len(wrong)} wrong values"
    )
    if lost or doubled or wrong:
        text = f"lost {sorted(lost)[:6]}, too many {sorted(doubled)[:6]}, (row, column, source, sink) {wrong[:4]}"
        raise VerdictError("doubled" if doubled and not lost else "lost", text, lost=len(lost), doubled=len(doubled))


def _mapped(scene: Scene) -> Mapped:
    source = Mapped(scene, scene.root / "orders")
    source.create(partitioned=scene.rng.random() < 0.2)
    return source


@kind
def names_that_move_under_an_append(scene: Scene) -> None:
    """Columns are dropped, added, renamed and swapped; the sink appends, and its names follow as messages say."""
    rng = scene.rng
    source = _mapped(scene)
    merges = rng.random() < 0.4
    policy = rng.choice(("on_schema_change=rename=follow,drop=follow", "accepted_schema_version=1000", ""))
    options = ("starting_version=0", *(one for one in (policy, rng.choice(LIMITS)) if one))
    stream = Stream(
        scene,
        Source(scene, source.path).path,
        options=options,
        arguments=("--sink-option", "merge_schema=yes") if merges else (),
    )
    stream.run()
    for _ in range(rng.randint(2, 3)):
        for _ in range(rng.randint(1, 2)):
            source.change_columns(keys=True)
            source.insert()
        if rng.random() < 0.3:
            kill_a_run(scene, stream)
        if not _way_on(scene, stream.run, lambda said: follow(stream, said, ("accept",), [])):
            scene.note("refused for good")
            return
        judge_columns(scene, source, stream.sink, has_elsewhere=merges)


@kind
def names_that_move_under_a_merge(scene: Scene) -> None:
    """The same where rows are merged by key: also the key's name moves, and rows are updated and deleted."""
    rng = scene.rng
    source = _mapped(scene)
    sink = scene.root / "silver"
    merges, scd = rng.random() < 0.4, rng.choice((1, 1, 2))
    kept = ", scd=2" if scd == 2 else ""
    added = ", merge_schema=True" if merges else ""
    policy = rng.choice(
        ("on_schema_change={'rename': 'follow', 'drop': 'follow'}, ", "accepted_schema_version=1000, ", "")
    )
    text = f"DeltaMergeSink({str(sink)!r}, keys=['id']{kept}{added})"
    table = Source(scene, source.path)
    stream = DagStream(scene, table, text, name_of(scene), f"read_change_feed=True, {policy}{option_of(scene)}")

    def run() -> Outcome:
        for _ in range(9):
            found = stream.run()
            if found["states"].get("ingest") != "success":
                break
        is_refused = found["states"].get("ingest") != "skipped" or "belong" in found["said"]
        return Outcome("", int(is_refused), "", found["said"])

    def accept(said: Outcome) -> bool:
        version = re.search(r"fds accept \S+ --version (\d+)", said.said)
        return version is not None and not stream.move("accept", "--version", version[1]).is_refused

    run()
    for _ in range(rng.randint(2, 3)):
        for _ in range(rng.randint(1, 2)):
            source.change_columns(keys=True)
            for step in rng.choices((source.insert, source.change_a_row), k=rng.randint(1, 2)):
                step()
        # names are compared with the next rows, because several statements may make one move
        source.insert()
        if rng.random() < 0.3:
            stream.die_somewhere()
            stream.give_up()
        if not _way_on(scene, run, accept):
            scene.note("refused for good")
            return
        where = "WHERE _is_current" if scd == 2 else ""
        judge_columns(scene, source, sink, has_elsewhere=scd == 2 and merges, where=where)


def _way_on(scene: Scene, run: Callable[[], Outcome], accept: Callable[[Outcome], Any]) -> bool:
    """Run, and do what a refusal names, until nothing is left; ``False`` if one names nothing more."""
    for _ in range(8):
        said = run()
        if not said.is_refused:
            return True
        if not put_right(scene, said.said) and not accept(said):
            return False
    return False
