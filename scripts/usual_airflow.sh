#!/usr/bin/env bash
# Resolve FDS beside the pins of usual Airflow installations: each minor version with the 14 most used providers of its
# time, on every Python. UPGRADE=1 compiles these pins again first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=tests/unit/usual_airflow
index=$(scripts/package_index.sh)
if [ -n "$index" ]; then
    export UV_DEFAULT_INDEX=$index
fi

# compile <version of Airflow> [newest day of its providers]
compile() {
    echo "apache-airflow==$1" | .venv/bin/uv pip compile --quiet --config-file "$folder/uv.toml" --universal \
        --python-version 3.11 --no-header --no-annotate ${2:+--exclude-newer "$2"} - "$folder/providers.in" \
        -o "$folder/airflow-${1%.*}.txt"
}

if [ -n "${UPGRADE:-}" ]; then
    compile 3.1.8 2026-03-15
    compile 3.2.2 2026-07-15
    compile 3.3.2
fi
FDS_RESOLVE=1 .venv/bin/python -m pytest --timeout 600 tests/unit/test_usual_airflow.py
