#!/usr/bin/env bash
# Build the docs site into build/site, with the pinned generator in .venv-docs. Fails at a broken link or anchor.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

index=$(scripts/package_index.sh)
if [ -n "$index" ]; then
    export UV_DEFAULT_INDEX=$index
fi
if ! [ -x .venv-docs/bin/python ]; then
    .venv/bin/uv venv --quiet --python .venv/bin/python .venv-docs
fi
.venv/bin/uv pip sync --quiet --python .venv-docs/bin/python --require-hashes requirements/docs.txt
.venv/bin/python scripts/docs_pages.py
.venv-docs/bin/python -m zensical build --clean --strict
