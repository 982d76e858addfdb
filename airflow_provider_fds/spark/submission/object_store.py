"""Spark's settings for S3: how to reach the same places as Airflow, and how to commit there.

Standard library only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.schemes import S3_SCHEMES, SCHEMES
from airflow_provider_fds.spark.installation.cache import SparkSetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_fds.places import Place
    from airflow_provider_fds.sinks import Sink

#: FDS's own log store; its source is in the JAR and in the folder ``java``.
S3_LOG_STORE: Final = "fds.storage.S3ConditionalLogStore"

_S3A: Final = "spark.hadoop.fs.s3a."
_PROVIDERS: Final = "org.apache.hadoop.fs.s3a."
#: S3A settings that select credentials; if the user sets one of them, none of Airflow's is set.
_CREDENTIALS: Final = (
    *("access.key", "secret.key", "session.token", "aws.credentials.provider", "assumed.role.arn"),
    *("assumed.role.credentials.provider", "delegation.token.binding", "security.credential.provider.path"),
)
#: obstore's alternative names of an option.
_ALIASES: Final = {"endpoint_url": "endpoint", "default_region": "region", "token": "session_token"}
#: Environment variables that Airflow's store client reads, and S3A does not.
_ENVIRONMENT: Final = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


@dataclass(frozen=True)
class JobStorage:
    """Where a job reads and writes.

    Attributes:
        places: Source, staging and sink.
        needs_log_store: Whether it commits on S3, where Delta's own log store would lose commits.
    """

    places: tuple[Place, ...] = ()
    needs_log_store: bool = False

    @property
    def is_on_s3(self) -> bool:
        """Whether Spark needs its S3 file system."""
        return any(_scheme(place.uri) in S3_SCHEMES for place in self.places)


def job_storage(places: Iterable[Place], sink: Sink | None) -> JobStorage:
    """Return the storage of a job that works on ``places`` and writes to ``sink``."""
    needs_log_store = sink is not None and sink.needs_log_store
    return JobStorage(tuple(places), needs_log_store)


def log_store_jar() -> Path:
    """Return the JAR that contains :data:`S3_LOG_STORE`."""
    return Path(__file__).resolve().parents[1] / "jars" / "fds-s3-log-store.jar"


def log_store_settings(storage: JobStorage, own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that make Delta commit on S3 through :data:`S3_LOG_STORE`; none if the user set a log store.

    Args:
        storage: Where the job writes.
        own: The user's own Spark settings.
    """
    # Delta takes either one class for all schemes, or one per scheme, and refuses both together
    if not storage.needs_log_store or any("delta.logStore." in key for key in own):
        return {}
    return {f"spark.delta.logStore.{scheme}.impl": S3_LOG_STORE for scheme in S3_SCHEMES}


def s3a_settings(storage: JobStorage, own: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings with which S3A reaches the buckets as Airflow does: the visible and the secret ones.

    The settings are per bucket. Keys are passed on. Anything that needs a cloud's own library, such as a role or a
    profile, stays with Airflow, and Spark falls back to its own credential chain. The user's own settings for
    credentials, endpoint or region take precedence.

    Args:
        storage: The places and how Airflow opens them.
        own: The user's own Spark settings.

    Raises:
        SparkSetupError: Two places in one bucket need different settings, or Spark cannot reach a place.
    """
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for place in storage.places:
        scheme = _scheme(place.uri)
        if scheme in SCHEMES and SCHEMES[scheme].hadoop is None:
            instead = SCHEMES[scheme].instead
            raise SparkSetupError(
                f"Spark has no file system for {scheme}://, the scheme of {place.uri}"
                + ("" if instead is None else f". Write it as {instead}")
            )
        if scheme not in S3_SCHEMES:
            continue
        bucket = place.uri.partition("://")[2].partition("/")[0]
        shown, hidden = _of_bucket(bucket, _options(place.options), own)
        for known, new in ((plain, shown), (secret, hidden)):
            if any(known.get(key, value) != value for key, value in new.items()):
                raise SparkSetupError(
                    f"the bucket {bucket} is reached in two ways ({_connections(storage, bucket)}), but Spark "
                    "uses one set of credentials and one endpoint per bucket. Use one connection for everything "
                    f"in it, or set {_S3A}bucket.{bucket}.* in Spark's own configuration"
                )
            known.update(new)
    return plain, secret


def _of_bucket(
    bucket: str, options: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of one bucket: the visible and the secret ones."""
    prefix = f"{_S3A}bucket.{bucket}."

    def is_own(*names: str) -> bool:
        return any(key in own for name in names for key in (_S3A + name, prefix + name))

    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    endpoint, region = options.get("endpoint"), options.get("region")
    if endpoint and not is_own("endpoint"):
        plain["endpoint"] = str(endpoint)
        # obstore's default region; S3A would ask for the bucket's region, which S3-compatible stores may not report
        region = region or "us-east-1"
        if not is_own("path.style.access"):
            plain["path.style.access"] = str(not _is_true(options.get("virtual_hosted_style_request"))).lower()
    if region and not is_own("endpoint.region"):
        plain["endpoint.region"] = str(region)
    key, word, token = (options.get(name) for name in ("access_key_id", "secret_access_key", "session_token"))
    if not is_own(*_CREDENTIALS):
        if key and word:
            secret |= {"access.key": str(key), "secret.key": str(word)}
            if token:
                secret["session.token"] = str(token)
            kind = "Temporary" if token else "Simple"
            plain["aws.credentials.provider"] = f"{_PROVIDERS}{kind}AWSCredentialsProvider"
        elif _is_true(options.get("skip_signature")):
            plain["aws.credentials.provider"] = f"{_PROVIDERS}AnonymousAWSCredentialsProvider"
    return {prefix + name: v for name, v in plain.items()}, {prefix + name: v for name, v in secret.items()}


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options under obstore's shortest names, with endpoint and region from the environment as defaults."""
    options = {}
    for key, value in given.items():
        if value not in (None, ""):
            name = key.lower().removeprefix("aws_")
            options[_ALIASES.get(name, name)] = value
    for name, variables in _ENVIRONMENT.items():
        found = next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
        if found is not None:
            options.setdefault(name, found)
    return options


def _connections(storage: JobStorage, bucket: str) -> str:
    """Return in words how the places in a bucket are reached, without anything secret."""
    ways = []
    for place in storage.places:
        scheme, _, rest = place.uri.partition("://")
        if scheme.lower() in S3_SCHEMES and rest.partition("/")[0] == bucket:
            conn_id = place.options.get("storage_conn_id")
            ways.append(f"{place.uri} by " + ("the environment" if conn_id is None else f"connection {conn_id!r}"))
    return ", ".join(ways)


def _scheme(uri: str) -> str:
    name, found, _ = uri.partition("://")
    return name.lower() if found else "file"


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes", "on")
