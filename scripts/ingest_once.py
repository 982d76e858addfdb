"""Load a small table with `fds run` of this environment, twice, and see that each row is in the sink once.

    scripts/ingest_once.py FOLDER [argument of `fds run` …]

Prints what wrote the sink's last commit: ``Apache-Spark/3.5.7 Delta-Lake/3.3.2``. Uses the environment as it is: the
Spark is the installed pyspark, or that of SPARK_HOME, PATH or ``--spark-binary``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow as pa

COMMITS, ROWS = 3, 100


def ids(table: str) -> list[int]:
    """Return the column of the table, sorted."""
    found: list[int] = sorted(deltalake.DeltaTable(table).to_pyarrow_table().column("id").to_pylist())
    return found


def ingest(folder: Path, arguments: list[str]) -> str:
    """Return the engine that wrote the sink.

    Raises:
        SystemExit: A run failed, or the sink has not exactly the rows of the source.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source, sink = str(folder / "source"), str(folder / "sink")
    command = [
        *(str(Path(sys.executable).with_name("fds")), "run", source, "--stream", "once", "--sink", sink),
        *("--staging", str(folder / "staging"), "--checkpoint", str(folder / "checkpoint.json")),
        *("--option", "starting_version=0", *arguments),
    ]
    for turn in range(2):
        for commit in range(COMMITS):
            first = (turn * COMMITS + commit) * ROWS
            deltalake.write_deltalake(source, pa.table({"id": list(range(first, first + ROWS))}), mode="append")
        ran = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
        if ran.returncode != 0:
            sys.exit(f"fds run ended with {ran.returncode}")
        if ids(sink) != ids(source):
            sys.exit(f"the sink has {len(ids(sink))} rows, the source {len(ids(source))}")
    return str(deltalake.DeltaTable(sink).history(1)[0]["engineInfo"])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(ingest(Path(sys.argv[1]).absolute(), sys.argv[2:]), flush=True)
    # deltalake's threads may abort an interpreter that ends in the ordinary way, after all is said
    os._exit(0)
