"""Run FDS with every Airflow and every Spark that it supports, and write down what was run.

    scripts/matrix.py                          everything, and the tables of docs/compatibility.md
    scripts/matrix.py airflow-3.1 spark-4.1    these rows
    scripts/matrix.py airflow-3.1/stack        this cell
    scripts/matrix.py --resume [ROW …]         only what has not passed in the last 100 commits
    scripts/matrix.py --check ROW …            writes no results, as in CI

Each cell of the tables is a program of its own, and its result goes to docs/compatibility.json as soon as it has ended:
a run that was broken off goes on with ``--resume``. The environments are pinned, and cached outside the tree, in
FDS_MATRIX_HOME (default ``~/.cache/fds-matrix``). Each Spark is the one inside PyPI's pyspark, in a folder of its own,
and stands for a distribution: FDS starts it by SPARK_HOME, from a worker without pyspark.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import long_runs
from environments import ROOT, environment, pinned, pip_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = ROOT / "docs" / "compatibility.md"
RESULTS = ROOT / "docs" / "compatibility.json"
HOME = Path(
    os.environ.get("FDS_MATRIX_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fds-matrix"
)

#: Airflow 3.3 is the one of the project's own environment.
AIRFLOWS = ("3.1", "3.2", "3.3")
#: The Spark of each minor version.
SPARKS = {"3.5": "3.5.7", "4.0": "4.0.1", "4.1": "4.1.4", "4.2": "4.2.0"}
#: Spark promises that a client works with servers of its own and of newer minor versions: the oldest works with all.
CLIENT, NEWEST_CLIENT = "4.0.1", "4.2.0"
SINKS = ("DeltaAppendSink", "DeltaMergeSink", "DeltaMergeSink(scd=2)", "DeltaReplaceSink", "ForeachBatchSink")

#: The seam between FDS and Airflow, without Spark.
SEAM = (
    "test_asset_watcher.py",
    "test_bad_input.py",
    "test_checkpoint_homes.py",
    "test_driver_reports.py",
    "test_fleet_dags.py",
    "test_fleet_operator.py",
    "test_fleet_trigger.py",
    "test_interval_trigger.py",
    "test_left_driver.py",
    "test_older_airflow.py",
    "test_owner.py",
    "test_provider_info.py",
    "test_sensor.py",
    "test_submit_command.py",
    "test_trigger.py",
    "test_values_as_arguments.py",
    "test_variable_checkpoint.py",
    "test_waiting.py",
)
AIRFLOW_CELLS = {
    "seam": tuple(f"tests/airflow/{name}" for name in SEAM),
    "examples": ("tests/airflow/test_parsing.py",),
    "stack": ("tests/stack/test_stack.py",),
}

_CELL_SECONDS = 1500
_BEGIN, _END = "<!-- make matrix writes this table: {} -->", "<!-- end of the table: {} -->"


class Result(NamedTuple):
    """What became of a cell.

    Attributes:
        verdict: ``passed`` or ``failed``.
        what: What was found: a summary of the tests, the engine that wrote the sink, or the refusal.
    """

    verdict: str
    what: str


def airflow_python(airflow: str) -> Path:
    """Return the Python of an Airflow with its pinned requirements and this package."""
    requirements = ROOT / "requirements" / f"airflow-{airflow.replace('.', '-')}.txt"
    if not requirements.exists():
        return Path(sys.executable)
    return pinned(HOME / f"airflow-{airflow}", requirements.stem, with_package=True)


def worker(client: str) -> Path:
    """Return the Python of an environment without Spark: the pinned requirements, and this client of Spark Connect."""
    # with their markers, without their hashes
    pins = re.findall(r"^([\w.-]+==[^\\\n]+)", (ROOT / "requirements" / "demo.txt").read_text(), re.MULTILINE)
    others = [pin for pin in pins if not pin.startswith(("pyspark==", "pyspark-client==", "delta-spark==", "nycfl"))]
    wanted = "\n".join([*others, f"pyspark-client=={client}"]) + "\n"

    folder = HOME / f"worker-{client}"

    def install(python: Path) -> None:
        (folder / "pins.txt").write_text(wanted)
        pip_install(python, "--no-deps", "-r", str(folder / "pins.txt"))
        pip_install(python, "--no-deps", "--editable", str(ROOT))

    python = environment(folder, install, f"{ROOT}\n{wanted}")
    lacking = "import importlib.metadata as m; print('pyspark' in {d.name for d in m.distributions()})"
    shown = subprocess.run([str(python), "-c", lacking], capture_output=True, text=True, check=True).stdout
    if shown.strip() != "False":
        sys.exit(f"{python} has pyspark, so it shows nothing about a worker without it")
    return python


def spark_home(version: str) -> Path:
    """Return the folder of a Spark, fetched the first time."""

    def install(python: Path) -> None:
        pip_install(python, "--no-deps", f"pyspark=={version}")

    folder = HOME / f"home-{version}"
    environment(folder, install, version)
    return folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pyspark"


def environ_of(python: Path, **more: str) -> dict[str, str]:
    """Return the environment of a cell: of this one only what says nothing of Airflow and Spark."""
    foreign = ("PYSPARK_", "AIRFLOW_", "SPARK_", "VIRTUAL_ENV")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
        "PATH": f"{python.parent}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
        "PYTHONPATH": str(ROOT),
        **more,
    }


def run(command: list[str], environ: dict[str, str], seconds: float = _CELL_SECONDS) -> tuple[int, str]:
    """Run a program to its end; return its exit code and what it said."""
    print(f"$ {' '.join(command[1:])[:200]}", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(
        command, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        said, _ = process.communicate()
        said += f"\nended after {seconds:.0f} s"
    print(said, flush=True)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return process.returncode, said


# ---- what a cell runs


def run_airflow(airflow: str, cell: str) -> dict[str, Result]:
    """Run tests of this Airflow; 3.1 deprecates names that the Spark provider of its time uses."""
    python = airflow_python(airflow)
    warnings = ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *warnings, *AIRFLOW_CELLS[cell]]
    code, said = run(command, environ_of(python))
    counted = re.findall(r"^=* ?(\d+ (?:passed|failed).*?) in [\d.]+", said, re.MULTILINE)
    what = counted[-1] if counted else f"exit code {code}"
    asked = [str(python), "-c", "import airflow; print(airflow.__version__)"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True, env=environ_of(python)).stdout
    return {cell: Result("failed" if code else "passed", f"{version.split()[-1]}: {what}")}


def run_sinks(folder: str, environ: dict[str, str], python: Path, *arguments: str) -> dict[str, Result]:
    """Load one sink of each kind, and return what became of each."""
    with tempfile.TemporaryDirectory(prefix=f"fds-{folder}-", ignore_cleanup_errors=True) as place:
        command = [str(python), str(ROOT / "scripts" / "ingest_sinks.py"), place, *arguments]
        _, said = run(command, environ)
    found = {name: Result("failed", "ended without a word") for name in SINKS}
    for name, verdict, what in re.findall(r"^(\S+): (passed|failed), (.*)$", said, re.MULTILINE):
        found[name] = Result(verdict, what)
    return found


def own_spark_environ(spark: str, python: Path) -> dict[str, str]:
    """Return the environment of a worker whose SPARK_HOME is this Spark."""
    return environ_of(
        python,
        SPARK_HOME=str(spark_home(SPARKS[spark])),
        SPARK_LOCAL_IP="127.0.0.1",
        AIRFLOW_HOME=str(HOME / "airflow"),
        FDS_CACHE_DIR=str(HOME / "cache"),
    )


def run_spark_submit(spark: str) -> dict[str, Result]:
    python = worker(NEWEST_CLIENT)
    return run_sinks(f"submit-{spark}", own_spark_environ(spark, python), python)


def run_connect(spark: str) -> dict[str, Result]:
    """Load on a server of this Spark with the one client, and see what the newest client is told."""
    with connect_server(spark) as url:
        if spark == "3.5":
            return {name: refused(url, CLIENT) for name in SINKS} | {"newest client": refused(url, NEWEST_CLIENT)}
        python = worker(CLIENT)
        found = run_sinks(f"connect-{spark}", own_environ(python), python, "--remote", url)
        if SPARKS[spark] == NEWEST_CLIENT:
            newest = worker(NEWEST_CLIENT)
            loaded = run_sinks("newest", own_environ(newest), newest, "--remote", url, SINKS[0])
            return found | {"newest client": loaded[SINKS[0]]}
        return found | {"newest client": refused(url, NEWEST_CLIENT)}


def own_environ(python: Path) -> dict[str, str]:
    return environ_of(python, AIRFLOW_HOME=str(HOME / "airflow"), FDS_CACHE_DIR=str(HOME / "cache"))


def refused(url: str, client: str) -> Result:
    """Run ``fds run`` with a client that the server is too old for: it must say so, and plan nothing."""
    python = worker(client)
    with tempfile.TemporaryDirectory(prefix="fds-refused-") as place:
        seed = f"import deltalake as d, pyarrow as p; d.write_deltalake({place + '/source'!r}, p.table({{'id': [1]}}))"
        subprocess.run([str(python), "-c", seed], check=True, env=own_environ(python))
        command = [
            *(str(python), "-m", "airflow_provider_fds.cli.main", "run", f"{place}/source", "--stream", "refused"),
            *("--sink", f"{place}/sink", "--staging", f"{place}/staging", "--checkpoint", f"{place}/checkpoint.json"),
            *("--remote", url),
        ]
        code, said = run(command, own_environ(python))
        planned = [path for path in Path(place).rglob("*") if "staging" in path.parts and path.is_file()]
    told = re.search(r"the server is Spark (\S+), but the installed pyspark is (\S+?)\. ", said)
    if code == 0 or told is None:
        return Result("failed", f"exit code {code}, and the versions were not named")
    if planned:
        return Result("failed", f"refused, but only after {len(planned)} files were written")
    return Result("refused", f"server {told[1]}, client {told[2]}")


@contextmanager
def connect_server(spark: str) -> Iterator[str]:
    """Start a Spark Connect server of this Spark with the Delta that FDS adds to it, and end it."""
    sys.path.insert(0, str(ROOT))
    from airflow_provider_fds.spark.installation.own_spark import find_own_spark
    from tests.interop.connect_server import running_server

    home = spark_home(SPARKS[spark])
    os.environ["FDS_CACHE_DIR"] = str(HOME / "cache")
    folder = Path(tempfile.mkdtemp(prefix=f"fds-connect-{spark}-"))
    try:
        with ExitStack() as stack:
            # only the server is of that Spark
            with patch.dict(os.environ, {"SPARK_HOME": str(home)}):
                found = find_own_spark(str(home / "bin" / "spark-submit"), os.environ)
                conf = {}
                if spark == "3.5":
                    # the server is no part of that Spark
                    conf["spark.jars.packages"] = f"org.apache.spark:spark-connect_{found.scala}:{found.version}"
                    conf["spark.jars.ivy"] = str(HOME / "cache" / "ivy-connect")
                server = stack.enter_context(running_server(folder, own_spark=found, **conf))
            yield server.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- rows, results and tables


class Row(NamedTuple):
    """One row of a table: its cells, and how they are run. Cells of one run are run together."""

    name: str
    table: str
    cells: tuple[str, ...]
    runs: tuple[tuple[tuple[str, ...], Callable[[], dict[str, Result]]], ...]


def airflow_row(airflow: str) -> Row:
    runs = tuple(((cell,), lambda cell=cell: run_airflow(airflow, cell)) for cell in AIRFLOW_CELLS)
    return Row(f"airflow-{airflow}", "airflow", tuple(AIRFLOW_CELLS), runs)


def spark_row(spark: str) -> Row:
    return Row(f"spark-{spark}", "spark", SINKS, ((SINKS, lambda: run_spark_submit(spark)),))


def connect_row(spark: str) -> Row:
    cells = (*SINKS, "newest client")
    return Row(f"connect-{spark}", "connect", cells, ((cells, lambda: run_connect(spark)),))


ROWS = {row.name: row for row in (*map(airflow_row, AIRFLOWS), *map(spark_row, SPARKS), *map(connect_row, SPARKS))}
HEADS = {
    "airflow": ("Airflow", "integration tests", "example DAGs parsed", "load and deferral in the real processes"),
    "spark": ("Spark", *(f"`{sink}`" for sink in SINKS)),
    "connect": ("server", *(f"`{sink}`" for sink in SINKS), f"client {NEWEST_CLIENT}"),
}


def known_results() -> dict[str, dict[str, dict[str, str]]]:
    """Return the results by row and cell."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def keep(row: Row, found: dict[str, Result]) -> None:
    """Add results to the file, and write the tables anew."""
    results = known_results()
    today, commit = long_runs.now(ROOT)
    when = {"date": today, "commit": commit}
    cells = results.setdefault(row.name, {})
    cells |= {cell: {"verdict": result.verdict, "what": result.what, **when} for cell, result in found.items()}
    text = json.dumps(results, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    RESULTS.write_text(text, encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


def with_tables(page: str, results: dict[str, dict[str, dict[str, str]]]) -> str:
    """Return the page with its tables as the results say; what has no result is said not to have been run."""
    for table, heads in HEADS.items():
        begin, end = _BEGIN.format(table), _END.format(table)
        before, rest = page.split(begin)
        _, after = rest.split(end)
        lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        lines += [table_line(row, results.get(row.name, {})) for row in ROWS.values() if row.table == table]
        page = f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"
    return page


def table_line(row: Row, cells: dict[str, dict[str, str]]) -> str:
    """Return a line of a table: the version that was run, and each cell's verdict with its date."""
    name = row.name.partition("-")[2]
    version, shown = SPARKS.get(name, name), []
    for cell in row.cells:
        result = cells.get(cell)
        if result is None:
            shown.append("not run")
            continue
        verdict = "**failed**" if result["verdict"] == "failed" else result["verdict"]
        what = result["what"]
        if row.table == "airflow":
            version, _, what = what.partition(": ")
            # tests that were skipped or left out are named in the output of the run
            verdict = f"{verdict} ({what})"
        elif (engine := re.search(r"Delta-Lake/(\S+)", what)) is not None and row.table != "airflow":
            verdict = f"{verdict} (Delta {engine[1]})" if cell == row.cells[0] else verdict
        shown.append(f"{verdict}, {result['date']}")
    return f"| {version} | {' | '.join(shown)} |"


def _is_done(result: dict[str, str]) -> bool:
    has_passed = result.get("verdict") in ("passed", "refused")
    return has_passed and long_runs.is_recent(ROOT, result.get("commit", ""))


def main() -> int:
    """Run what the command line names, or everything."""
    parser = argparse.ArgumentParser(description="Run FDS with each Airflow and each Spark.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)} (default: all)")
    parser.add_argument("--resume", action="store_true", help="only cells that have not passed in the last 100 commits")
    parser.add_argument("--check", action="store_true", help="write no results")
    parser.add_argument("--tables", action="store_true", help="only write the tables again from the results")
    arguments = parser.parse_args()
    asked = [tuple(name.partition("/")[::2]) for name in arguments.rows] or [(name, "") for name in ROWS]
    if unknown := [name for name, cell in asked if name not in ROWS or cell not in ("", *ROWS[name].cells)]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(ROWS)}")
    if arguments.tables:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), known_results()), encoding="utf-8")
        return 0
    is_failed = False
    for name, only in asked:
        row = ROWS[name]
        for cells, work in row.runs:
            if only and only not in cells:
                continue
            known = known_results().get(row.name, {})
            if arguments.resume and all(_is_done(known.get(cell, {})) for cell in cells):
                continue
            print(f"== {row.name}: {', '.join(cells)}", flush=True)
            found = work()
            if not arguments.check:
                keep(row, found)
            is_failed |= any(result.verdict == "failed" for result in found.values())
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main())
