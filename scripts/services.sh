#!/usr/bin/env bash
# Run the operators of other services that start a Spark job, with the packages of their providers, which are in a
# folder beside .venv: in it, every process of Airflow would load them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=.compat/services
wanted=$(cksum requirements/services.txt requirements/dev.txt)
if [ ! -f "$folder/made-from.txt" ] || [ "$(cat "$folder/made-from.txt")" != "$wanted" ]; then
    index=$(scripts/package_index.sh)
    if [ -n "$index" ]; then
        export UV_DEFAULT_INDEX=$index
    fi
    rm -rf "$folder"
    .venv/bin/uv pip install --quiet --python .venv/bin/python --target "$folder" --no-deps --require-hashes \
        --build-constraints requirements/build.txt -r requirements/services.txt
    echo "$wanted" >"$folder/made-from.txt"
fi
.venv/bin/python -m pytest --durations=12 --durations-min=5 tests/services
