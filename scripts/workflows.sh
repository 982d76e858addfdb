#!/usr/bin/env bash
# Check the hosted workflows: their form, the shell in them, and what they would let others do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
actionlint_version=v1.7.12

.venv/bin/check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml
.venv/bin/check-jsonschema -q --builtin-schema vendor.dependabot .github/dependabot.yml
.venv/bin/zizmor --offline --quiet .github

# actionlint is a program in Go: one that is installed, or built once by the Go that is there
linter=$(command -v actionlint || true)
if [ -z "$linter" ] && command -v go > /dev/null; then
    linter=build/tools/actionlint-$actionlint_version
    if [ ! -x "$linter" ]; then
        GOBIN=$PWD/build/tools go install "github.com/rhysd/actionlint/cmd/actionlint@$actionlint_version" 2> /dev/null \
            && mv build/tools/actionlint "$linter"
    fi
fi
if [ -n "$linter" ]; then
    "$linter"
else
    echo "warning: workflows are checked without actionlint, which needs Go" >&2
fi
