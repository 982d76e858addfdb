"""Exceptions of Airflow by name: 3.1 has some of them in another module than 3.2."""

from __future__ import annotations

from importlib import import_module


def sdk_exception(name: str) -> type[Exception]:
    """Return an exception that the task runner of this Airflow knows, such as ``TaskDeferralTimeout``."""
    module = import_module("airflow.sdk.exceptions")
    if not hasattr(module, name):
        # Airflow 3.1
        module = import_module("airflow.exceptions")
    found: type[Exception] = getattr(module, name)
    return found
