"""The Airflow that FDS needs, and where its versions differ. Standard library only; does not import Airflow itself."""

from __future__ import annotations

import re
import sys
from importlib import import_module, metadata

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

_OLDEST = (3, 1)


def check_airflow() -> None:
    """Refuse an Airflow that is too old, before an import from it fails.

    pip refuses it too, unless ``--no-deps`` was given. The packages of the Airflow side call this when they are
    imported.

    Raises:
        ConfigurationError: Airflow is older than 3.1.
    """
    if is_airflow_at_least(*_OLDEST):
        return
    version, oldest = _airflow_version(), ".".join(map(str, _OLDEST))
    raise ConfigurationError(
        f"Airflow {version} is installed, but FDS needs Airflow {oldest} or newer. Upgrade it with the "
        f"constraints of your Python: pip install 'apache-airflow>={oldest},<4'",
        reason=Reason.AIRFLOW_TOO_OLD,
    )


def is_airflow_at_least(*oldest: int) -> bool:
    """Whether Airflow is of this version or newer, or its version is unknown."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", _airflow_version() or "")[: len(oldest)])
    return not numbers or numbers >= oldest


def sdk_exception(name: str) -> type[Exception]:
    """Return an exception that the task runner of this Airflow knows, such as ``TaskDeferralTimeout``."""
    module = import_module("airflow.sdk.exceptions")
    if not hasattr(module, name):
        # Airflow 3.1
        module = import_module("airflow.exceptions")
    found: type[Exception] = getattr(module, name)
    return found


def _airflow_version() -> str | None:
    """Return the version of the imported Airflow, or of the installed one; ``None`` without Airflow."""
    imported = getattr(sys.modules.get("airflow"), "__version__", None)
    if isinstance(imported, str):
        return imported
    for name in ("apache-airflow-core", "apache-airflow"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
