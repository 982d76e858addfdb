"""Run the driver's tests on older Sparks, each with the Delta that belongs to it, in an environment of its own.

What runs on the Spark driver has to run on the Spark that a cluster has, not on the one that FDS is installed with.

    scripts/compat.py               all of them
    scripts/compat.py 3.5           this one
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".compat"

SPARKS = ("3.5", "4.0")

#: What they show: batches land once by each sink, are looked up, refused and fenced, with vectors and odd partitions.
TESTS = (
    "tests/interop/spark/test_sink_delta.py",
    "tests/interop/spark/test_sink_replace.py",
    "tests/interop/spark/test_sink_merge.py",
    "tests/interop/spark/test_sink_foreach.py",
    "tests/interop/spark/test_sink_options.py",
    "tests/interop/spark/test_user_job.py",
    "tests/interop/spark/test_fence.py",
    "tests/interop/spark/test_fleet_job.py",
    "tests/interop/spark/test_sink_transactions.py",
    "tests/interop/spark/test_spark_job.py",
    "tests/interop/spark/test_where.py",
    "tests/interop/test_manifest_partitions.py",
    "tests/interop/test_manifest_vectors.py",
)


def environment(spark: str) -> Path:
    """Make the environment of a Spark, if it is not there as its requirements say, and return its Python."""
    requirements = ROOT / "requirements" / f"spark-{spark.replace('.', '-')}.txt"
    folder = ENVIRONMENTS / f"spark-{spark}"
    python, made_from = folder / "bin" / "python", folder / "made-from.txt"
    wanted = requirements.read_text()
    if made_from.exists() and made_from.read_text() == wanted:
        return python
    uv = str(Path(sys.executable).with_name("uv"))
    asked = subprocess.run(
        [ROOT / "scripts" / "package_index.sh"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    if index := asked.stdout.strip():
        os.environ["UV_DEFAULT_INDEX"] = index
    print(f"making {folder.relative_to(ROOT)}", flush=True)
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes"]
    constraints = ["--build-constraints", str(ROOT / "requirements" / "build.txt")]
    subprocess.run([*install, *constraints, "-r", str(requirements)], check=True)
    made_from.write_text(wanted)
    return python


def run(spark: str) -> int:
    """Run the tests on one Spark and return pytest's exit code."""
    python = environment(spark)
    # JARs of one version of Delta each; the tests' own Spark keeps its cache
    own = {"PYTHONPATH": str(ROOT), "FDS_CACHE_DIR": str(ENVIRONMENTS / "cache")}
    print(f"== Spark {spark}", flush=True)
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *TESTS]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, check=False).returncode


def main() -> int:
    """Run what the command line names."""
    sparks = sys.argv[1:] or SPARKS
    if unknown := [spark for spark in sparks if spark not in SPARKS]:
        print(f"there are no requirements for Spark {', '.join(unknown)}; there are for {', '.join(SPARKS)}")
        return 2
    return max([run(spark) for spark in sparks])


if __name__ == "__main__":
    sys.exit(main())
