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

# Airflow 3.1 does not import with structlog 25.5; its own constraints have an older one
echo 'structlog<25.5' >.compat/lowest-constraints.txt
.venv/bin/uv pip compile --quiet --python-version 3.11 --resolution lowest-direct --no-header --no-annotate \
    pyproject.toml --extra local --group tests --group demo --constraints .compat/lowest-constraints.txt -o .compat/lowest.txt
if ! cmp -s .compat/lowest.txt "$folder/made-from.txt"; then
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python "$folder"
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" --compile-bytecode \
        --build-constraints requirements/build.txt -r .compat/lowest.txt
    # entry points; the tree itself is imported from here
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" --no-deps --editable .
    cp .compat/lowest.txt "$folder/made-from.txt"
fi

export PATH="$PWD/$folder/bin:$PATH"
# the oldest Spark provider uses names that Airflow deprecates
old=(-p no:cacheprovider -W ignore::FutureWarning -W ignore::DeprecationWarning)
# without those of pages and of built packages, which are about tools of the newest environment
python -m pytest "${old[@]}" --timeout 1200 --ignore tests/unit/docs --ignore tests/unit/test_package.py \
    "${@:-tests/unit}"
# another Airflow than the one of make test: the operators import and build their command. The test that is left out uses
# parts of Airflow that 3.1 does not have
python -m pytest "${old[@]}" \
    tests/airflow/test_older_airflow.py tests/airflow/test_submit_command.py \
    --deselect tests/airflow/test_submit_command.py::test_spark_submit_is_started_without_the_keys_of_airflow
python scripts/ingest_once.py .compat/lowest-run
