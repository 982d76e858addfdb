#!/usr/bin/env bash
# Run the unit tests and one ingest with the oldest versions that pyproject.toml allows, in an environment of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=.compat/lowest
index=$(scripts/package_index.sh)
if [ -n "$index" ]; then
    export UV_DEFAULT_INDEX=$index
fi
mkdir -p .compat

.venv/bin/uv pip compile --quiet --python-version 3.11 --resolution lowest-direct --no-header --no-annotate \
    pyproject.toml --extra local --group tests --group demo -o .compat/lowest.txt
if ! cmp -s .compat/lowest.txt "$folder/made-from.txt"; then
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python "$folder"
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" --compile-bytecode \
        --build-constraints requirements/build.txt -r .compat/lowest.txt
    # entry points; the tree itself is imported from here
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" --no-deps --editable .
    cp .compat/lowest.txt "$folder/made-from.txt"
fi

export PATH="$PWD/$folder/bin:$PATH"
python -m pytest -p no:cacheprovider "${@:-tests/unit}"
python scripts/ingest_once.py .compat/lowest-run
