#!/usr/bin/env bash
# Compile the requirements of the older Airflows: the newest patch version of each with its core libraries, as a usual
# installation has them (tests/unit/usual_airflow), and everything else as in requirements/dev.txt where that goes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
index=$(scripts/package_index.sh)
if [ -n "$index" ]; then
    export UV_DEFAULT_INDEX=$index
fi
# Airflow 3.2 loses the registry of svcs 26.2 when it runs a DAG in one process
core='apache-airflow[a-z-]*|sqlalchemy[a-z-]*|structlog|fastapi|starlette|cadwyn|pydantic|pydantic-core|svcs'
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
for minor in 3.1 3.2; do
    out=requirements/airflow-${minor/./-}.txt
    grep -E "^($core)==" "tests/unit/usual_airflow/airflow-$minor.txt" >"$constraints"
    # uv keeps the versions that it finds in its output file
    if [ -n "${UPGRADE:-}" ] || [ ! -f "$out" ]; then
        cp requirements/dev.txt "$out"
    fi
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        pyproject.toml --extra local --group tests --group demo --constraints "$constraints" -o "$out"
done
