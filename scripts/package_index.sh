#!/usr/bin/env bash
# Print the package index that pip was told of, for uv, which does not read pip's settings; nothing where uv has its own.
set -euo pipefail
if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    echo "${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}"
fi
