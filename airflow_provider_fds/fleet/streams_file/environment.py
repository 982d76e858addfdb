"""Environment variables in the texts of a file: ``${NAME}`` and ``${NAME:-default}``, as in a shell, but no secrets.

A dollar sign that is not followed by a brace stands for itself, and ``$${`` for ``${``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.credentials import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{(?P<inner>[^{}]*)\}|(?P<open>\$\{)")
_INNER: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>:-.*)?", re.DOTALL)

#: A long text of mixed letters and digits, as keys are.
_KEY: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_=-]{32,}(?![A-Za-z0-9+/_=-])")
_KINDS: Final = tuple(map(re.compile, (r"[a-z]", r"[A-Z]", r"[0-9]")))


def interpolated(text: str, environment: Mapping[str, str]) -> str:
    """Return ``text`` with its variables replaced. A value is taken as it is: it is not searched for variables.

    Raises:
        ValueError: A variable is not set, may hold a credential, or is not written as ``${NAME}``.

    >>> interpolated("s3://${BUCKET}/raw-${STAGE:-dev}", {"BUCKET": "lake"})
    's3://lake/raw-dev'
    """

    def value_of(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        inner = None if found["open"] else _INNER.fullmatch(found["inner"])
        if inner is None:
            raise ValueError(
                f"{text!r} has a variable that cannot be read. Write ${{NAME}} or ${{NAME:-default}}; $${{ stands for "
                "a dollar sign with a brace."
            )
        name = inner["name"]
        value = environment.get(name)
        if is_secret(name, value) or (value is not None and _looks_like_key(value)):
            raise ValueError(
                f"the environment variable {name} looks like a credential, and its value would be visible in the DAG. "
                "Put it into an Airflow connection and name that in storage_conn_id or conn_id."
            )
        if value is None and inner["rest"] is None:
            raise ValueError(
                f"the environment variable {name} is not set. Set it where Airflow parses DAG files and runs tasks, or "
                f"write ${{{name}:-default}}."
            )
        return value if value is not None else inner["rest"][2:]

    return _VARIABLE.sub(value_of, text)


def _looks_like_key(value: str) -> bool:
    return any(all(kind.search(found) for kind in _KINDS) for found in _KEY.findall(value))
