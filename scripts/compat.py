"""Run the driver's tests on older Sparks, each with the Delta that belongs to it, in an environment of its own.

What runs on the Spark driver has to run on the Spark that a cluster has, not on the one that FDS is installed with.

    scripts/compat.py               all of them
    scripts/compat.py 3.5           this one
"""

from __future__ import annotations

import os
import subprocess
import sys

from environments import ROOT, pinned

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
    "tests/interop/postgres/test_append.py",
    "tests/interop/postgres/test_merge.py",
    "tests/interop/postgres/test_values.py",
)


def run(spark: str) -> int:
    """Run the tests on one Spark and return pytest's exit code."""
    python = pinned(ENVIRONMENTS / f"spark-{spark}", f"spark-{spark.replace('.', '-')}", with_package=False)
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
