"""The section ``[fds]`` of Airflow's configuration, with the defaults that depend on the installation."""

from __future__ import annotations

import math
import os
import re
from datetime import timedelta
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from airflow_provider_fds.credentials import redacted_uri
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.staging.housekeeping import Retention
    from airflow_provider_fds.source.options.schema_policy import Rules

_SECTION: Final = "fds"

#: Executors whose tasks run on the scheduler's own machine, so that a local folder is the same for all of them.
_ONE_MACHINE_EXECUTORS: Final = ("LocalExecutor", "SequentialExecutor", "InProcessExecutor")

#: A longer time would begin before the first date that Python knows.
_LONGEST_DAYS: Final = 36_500


def deployment() -> str:
    """Return the name of this Airflow installation: ``[fds] deployment``, else the API server's base URL."""
    from airflow.providers.common.compat.sdk import conf

    named = conf.get(_SECTION, "deployment", fallback="").strip()
    return named or conf.get("api", "base_url", fallback="").strip().rstrip("/") or "http://localhost:8080"


def poll_interval_seconds() -> float:
    """Return ``[fds] poll_interval``: seconds between two polls of a table."""
    value = _number("poll_interval", 60)
    if value is None or value <= 0 or math.isinf(value):
        raise ConfigurationError(
            f"[fds] poll_interval is {_text('poll_interval')!r}; it must be a number of seconds greater than 0, such "
            "as 60."
        )
    return value


def refuse_former_settings() -> None:
    """Refuse a setting of an older version that Airflow would ignore.

    Raises:
        ConfigurationError: Names the setting that replaces it.
    """
    from airflow.providers.common.compat.sdk import conf

    if conf.get(_SECTION, "retention", fallback=""):
        raise ConfigurationError("[fds] retention is manifest_retention_days now. Rename the setting.")


def retention() -> Retention:
    """Return ``[fds] manifest_retention_days``: how long to keep the plans and manifests of committed batches."""
    from airflow_provider_fds.ledger.staging.housekeeping import Retention

    days = _number("manifest_retention_days", 14)
    if days is None or days < 0:
        raise ConfigurationError(
            f"[fds] manifest_retention_days is {_text('manifest_retention_days')!r}; it must be a number of days, such "
            "as 14."
        )
    return Retention(age=timedelta(days=min(days, _LONGEST_DAYS)))


def schema_changes() -> Rules:
    """Return ``[fds] on_schema_change``: the rules for changes of a schema that a stream has no rule for."""
    from airflow.providers.common.compat.sdk import conf

    from airflow_provider_fds.source.options.schema_policy import OPTION, installation_rules

    try:
        return installation_rules(conf.get(_SECTION, OPTION, fallback=""))
    except ValueError as error:
        raise ConfigurationError(f"[fds] {OPTION} {error}.") from error


def base_path() -> str:
    """Return the path of Airflow's UI, from the API server's base URL, without a trailing slash; ``""`` at the root."""
    from airflow.providers.common.compat.sdk import conf

    url: str = conf.get("api", "base_url", fallback="")
    return urlsplit(url).path.rstrip("/")


def catalog_url(table: str, version: int) -> str | None:
    """Return the page of a table's version by ``[fds] catalog_url_template``, ``None`` if that is not set.

    Args:
        table: URI of the table.
        version: The version.

    Raises:
        ConfigurationError: The template is not a URL, has a credential, or has other placeholders.
    """
    template = _template("catalog_url_template")
    if template is None:
        return None
    if not _is_template(template, "table", "version"):
        raise ConfigurationError(
            f"[fds] catalog_url_template is {redacted_uri(template)!r}; it must be an http or https URL without "
            "credentials, with the placeholders {table} and {version}, such as "
            "https://catalog.example/table?location={table}&version={version}.",
            reason=Reason.INVALID_OPTION,
        )
    return template.format(table=quote(table, safe=""), version=version)


def spark_history_url(application: str) -> str | None:
    """Return the page of a Spark application by ``[fds] spark_history_url_template``, ``None`` if that is not set.

    Args:
        application: Id of the application.

    Raises:
        ConfigurationError: The template is not a URL, has a credential, or has other placeholders.
    """
    template = _template("spark_history_url_template")
    if template is None:
        return None
    if not _is_template(template, "application"):
        raise ConfigurationError(
            f"[fds] spark_history_url_template is {redacted_uri(template)!r}; it must be an http or https URL without "
            "credentials, with the placeholder {application}, such as https://history.example/history/{application}.",
            reason=Reason.INVALID_OPTION,
        )
    return template.format(application=quote(application, safe=""))


def _template(setting: str) -> str | None:
    return _text(setting) or None


def _text(setting: str, default: object = "") -> str:
    from airflow.providers.common.compat.sdk import conf

    return str(conf.get(_SECTION, setting, fallback=str(default))).strip()


def _number(setting: str, default: float) -> float | None:
    """Return a number from the settings, or ``None`` if the text is no number. Airflow's own error would be retried."""
    try:
        value = float(_text(setting, default))
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _is_template(template: str, needed: str, *others: str) -> bool:
    """Whether a template is that of a page, with the placeholder ``needed`` and none but ``others`` besides."""
    try:
        fields = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError:
        return False
    return is_page(template) and needed in fields and fields <= {needed, *others}


def is_page(url: str) -> bool:
    """Whether a URL may be a link that everybody sees: http or https, without credentials."""
    return re.match(r"https?://[^/\s@]+(?:[/?#]|$)", url) is not None


def ui_staging_uris() -> list[str]:
    """Return ``[fds] ui_staging``, the staging folders that the page "Delta streams" shows; else the default folder.

    Raises:
        ConfigurationError: Nothing is configured, and the API server may not share a disk with the tasks.
    """
    from airflow.providers.common.compat.sdk import conf

    from airflow_provider_fds.delta.storage.open import canonical_uri

    named = [uri.strip() for uri in conf.get(_SECTION, "ui_staging", fallback="").split(",") if uri.strip()]
    if named:
        return list(dict.fromkeys(canonical_uri(uri) for uri in named))
    try:
        return [staging_uri(None, "")]
    except ConfigurationError as error:
        raise ConfigurationError(
            "No staging folder is configured, so the page has no streams to show. Set [fds] staging, or [fds] "
            "ui_staging if the streams are in other folders.",
            reason=Reason.STAGING_UNUSABLE,
        ) from error


def staging_conn_id() -> str | None:
    """Return ``[fds] staging_conn_id``: the connection with which the API server reaches staging, ``None`` for none."""
    from airflow.providers.common.compat.sdk import conf

    return conf.get(_SECTION, "staging_conn_id", fallback="").strip() or None


def cache_dir() -> Path | None:
    """Return ``[fds] cache_dir``, or ``None`` if it is not set (``spark.cache`` then uses its default)."""
    from airflow.providers.common.compat.sdk import conf

    named = conf.get(_SECTION, "cache_dir", fallback="").strip()
    return Path(named).expanduser() if named else None


def staging_uri(stream_staging: str | None, stream_name: str) -> str:
    """Return the staging folder of a stream: its own, else ``[fds] staging``, else a local folder if that can work.

    Raises:
        ConfigurationError: Nothing is configured, and tasks may run on machines that do not share a disk.
    """
    from airflow.providers.common.compat.sdk import conf

    from airflow_provider_fds.delta.storage.open import canonical_uri

    named = stream_staging or conf.get(_SECTION, "staging", fallback="").strip()
    if named:
        return canonical_uri(named)
    executor = conf.get("core", "executor", fallback="LocalExecutor")
    # there may be several, and those of teams
    if not all(one.strip().endswith(_ONE_MACHINE_EXECUTORS) for one in re.split("[,;]", executor) if one.strip()):
        raise ConfigurationError(
            f"Stream {stream_name!r} has no staging folder, and tasks of the executor {executor!r} do not share a "
            "disk. Set [fds] staging (AIRFLOW__FDS__STAGING) to a folder that Airflow's workers and Spark can "
            "reach, such as s3://lake/_fds, or give the stream staging=…",
            reason=Reason.STAGING_UNUSABLE,
        )
    home = os.environ.get("AIRFLOW_HOME") or "~/airflow"
    return canonical_uri(str(Path(home).expanduser() / "fds"))
