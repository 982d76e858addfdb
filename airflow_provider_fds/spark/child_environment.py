"""The environment that Spark is started with: this process's, without what is Airflow's own. Standard library only.

An Airflow worker has the keys of Airflow in its environment: connections, variables, the URI of the metadata database,
the Fernet key. A user's code in Spark could read and print them, and needs none of them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names variables that Spark is to have all the same, comma separated; ``*``: all.
PASSED: Final = "FDS_SPARK_ENVIRONMENT"

_AIRFLOWS: Final = re.compile(r"_?AIRFLOW_(?:CONN|VAR)_.+|_?AIRFLOW__.+|_AIRFLOW_.+|SQLALCHEMY_DATABASE_URI")


def held_back(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the variables that Spark is started without."""
    environ = os.environ if environ is None else environ
    passed = {name.strip() for name in environ.get(PASSED, "").split(",")}
    return [] if "*" in passed else [name for name in environ if _AIRFLOWS.fullmatch(name) and name not in passed]


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for Spark, on top of which a task's ``env_vars`` go."""
    environ = os.environ if environ is None else environ
    without = set(held_back(environ))
    return {name: value for name, value in environ.items() if name not in without}


__all__ = ["PASSED", "child_environment", "held_back"]
