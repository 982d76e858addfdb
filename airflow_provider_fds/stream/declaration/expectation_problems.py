"""What a stream may declare as its expectations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_fds.batch.spec import ACTIONS
from airflow_provider_fds.sinks.expression import row_test_problem
from airflow_provider_fds.stream.declaration.backfill_range import is_template

#: An expression is its name in reports, in the ledger and in metrics.
_LONGEST: Final = 500
_MOST: Final = 100
_EXAMPLE: Final = "{'amount >= 0': 'drop'}"


def expectation_problems(expect: Any, max_rejected: Any, rejects: Any) -> list[str]:
    """Return what is wrong with the arguments of a stream, one sentence each."""
    if expect is None or expect == {}:
        given = [name for name, value in (("max_rejected", max_rejected), ("rejects", rejects)) if value is not None]
        return [f"{name} needs expect: without an expectation, no row is kept out of the sink." for name in given]
    if not isinstance(expect, Mapping):
        return [f"expect must be a mapping of SQL expressions to actions, such as {_EXAMPLE}; got {expect!r}."]
    problems = [problem for text, action in expect.items() for problem in _problems(text, action)]
    if len(expect) > _MOST:
        problems.append(f"expect has {len(expect)} expectations; a stream has at most {_MOST}.")
    actions = {str(action) for action in expect.values()}
    if rejects is None and "reject" in actions:
        problems.append(
            "the action 'reject' needs rejects, the URI of the Delta table that gets these rows. The first of them "
            "creates it; choose a folder that only those may read who may see the rows."
        )
    if rejects is not None and "reject" not in actions:
        problems.append("rejects needs an expectation with the action 'reject'.")
    if max_rejected is None:
        return problems
    is_number = isinstance(max_rejected, (int, float)) and not isinstance(max_rejected, bool)
    if not is_number or not 0 <= max_rejected <= 1:
        problems.append(f"max_rejected must be a share from 0 to 1, such as 0.01, got {max_rejected!r}.")
    if not actions & {"drop", "reject"}:
        problems.append("max_rejected needs an expectation with the action 'drop' or 'reject'.")
    return problems


def _problems(text: Any, action: Any) -> list[str]:
    if not isinstance(text, str) or not text.strip():
        return [f"expect: an expectation must be a SQL expression, got {text!r}."]
    problems = []
    if is_template(text):
        problems.append(f"expect: {text!r} is a template. Write the value itself: every run tests rows alike.")
    elif (problem := row_test_problem(text)) is not None:
        problems.append(
            f"expect: {text!r} contains {problem}. An expectation is a plain expression of a row's columns, with the "
            "same result whenever it is evaluated; `_commit_timestamp` is the time of the row's commit."
        )
    if len(text) > _LONGEST:
        problems.append(f"expect: an expression has at most {_LONGEST} characters, got {len(text)}: {text[:60]!r}….")
    if action not in ACTIONS:
        problems.append(f"expect: the action of {text!r} must be one of {', '.join(ACTIONS)}, got {action!r}.")
    return problems
