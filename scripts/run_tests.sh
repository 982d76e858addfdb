#!/usr/bin/env bash
# Run `make check` and the suites of tests/ one after the other, each in a process of its own: a process holds one Spark session.
# All run, even if one fails; the exit code says whether all passed.
#
#   scripts/run_tests.sh                 all
#   scripts/run_tests.sh unit interop    these
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(check unit interop chaos airflow stack)
summary=()
failed=0
for suite in "${suites[@]}"; do
    echo "== $suite"
    start=$SECONDS
    if [ "$suite" = check ]; then
        make --no-print-directory check
    else
        .venv/bin/python -m pytest "tests/$suite"
    fi
    code=$?
    verdict=passed
    if [ $code -ne 0 ]; then
        verdict="FAILED ($code)"
        failed=1
    fi
    summary+=("$(printf '%-8s %-11s %4d s' "$suite" "$verdict" $((SECONDS - start)))")
done
echo
printf '%s\n' "${summary[@]}"
exit $failed
