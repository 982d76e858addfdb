"""Spark's settings for S3: how to reach the same places as Airflow, and how to commit there.

Standard library only.
"""

from __future__ import annotations

import logging
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

_LOG = logging.getLogger(__name__)

_HADOOP: Final = "spark.hadoop."
_S3A: Final = "spark.hadoop.fs.s3a."
#: Asks a catalog for the keys of one table, and again before they expire (``installation/jars.py`` has its JARs).
VENDED_PROVIDER: Final = "io.unitycatalog.hadoop.internal.auth.AwsVendedTokenProvider"
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
        serves_s3: Whether it works on S3 at places that are not known yet, as a server does.
    """

    places: tuple[Place, ...] = ()
    needs_log_store: bool = False
    serves_s3: bool = False

    @property
    def is_on_s3(self) -> bool:
        """Whether Spark needs its S3 file system."""
        return self.serves_s3 or any(_scheme(place.uri) in S3_SCHEMES for place in self.places)

    def covers(self, other: JobStorage) -> bool:
        """Whether a Spark that was started for this storage reaches the other one, in the same way."""
        return other._ways() <= self._ways() and self.needs_log_store >= other.needs_log_store

    def _ways(self) -> set[tuple[str, str, int]]:
        """Return each bucket with the options by which it is reached, and with who provides credentials for it."""
        found = set()
        for place in self.places:
            if _scheme(place.uri) in S3_SCHEMES:
                options = {**place.options}
                # there is one for each connection, or for each table of a catalog; its text does not tell which
                provider = id(options.pop("credential_provider", None))
                found.add((_bucket(place.uri), repr(sorted(options.items())), provider))
        return found

    def vended(self, own: Mapping[str, Any]) -> Place | None:
        """Return the table for which Spark asks its catalog for keys.

        S3A has one provider of keys for a bucket, and the catalog gives keys for one table, to read. So if the job
        works on anything else in that bucket, Spark reads the table with its own credentials.

        Args:
            own: The user's own Spark settings; credentials among them take precedence.

        Raises:
            SparkSetupError: There are several such tables: an application can ask for one.
        """
        found: dict[int, Place] = {}
        on_s3 = [place for place in self.places if _scheme(place.uri) in S3_SCHEMES]
        for place in on_s3:
            if not _hadoop(place) or _has_own_keys(_bucket(place.uri), own):
                continue
            beside = [one for one in on_s3 if _bucket(one.uri) == _bucket(place.uri) and one.uri != place.uri]
            if not beside:
                found[id(place.options["credential_provider"])] = place
                continue
            _LOG.info(
                "Spark reads %s with its own credentials, not with those of the catalog, because %s is in the same "
                "bucket, and Spark uses one set of credentials for each.", place.name or place.uri, beside[0].uri,
            )  # fmt: skip
        if len(found) > 1:
            names = ", ".join(place.name or place.uri for place in found.values())
            raise SparkSetupError(
                f"one application reads one table with credentials of a catalog, not {names}. Give Spark credentials "
                f"of its own for their buckets ({_S3A}bucket.BUCKET.aws.credentials.provider)"
            )
        return next(iter(found.values()), None)


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


def s3a_settings(
    storage: JobStorage, own: Mapping[str, Any], vended: Place | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings with which S3A reaches the buckets as Airflow does: the visible and the secret ones.

    The settings are per bucket. Keys are passed on. Anything that needs a cloud's own library, such as a role or a
    profile, stays with Airflow, and Spark falls back to its own credential chain. The user's own settings for
    credentials, endpoint or region take precedence.

    Args:
        storage: The places and how Airflow opens them.
        own: The user's own Spark settings.
        vended: The table for which Spark asks its catalog for keys, see :meth:`JobStorage.vended`.

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
        bucket = _bucket(place.uri)
        shown, hidden = _of_bucket(bucket, _options(place.options), own)
        if place is vended:
            shown[f"{_S3A}bucket.{bucket}.aws.credentials.provider"] = VENDED_PROVIDER
            hidden |= {_HADOOP + key: value for key, value in _hadoop(place).items()}
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

    def is_own(name: str) -> bool:
        return _is_own(bucket, name, own)

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
    if not _has_own_keys(bucket, own):
        if key and word:
            secret |= {"access.key": str(key), "secret.key": str(word)}
            if token:
                secret["session.token"] = str(token)
            kind = "Temporary" if token else "Simple"
            plain["aws.credentials.provider"] = f"{_PROVIDERS}{kind}AWSCredentialsProvider"
        elif _is_true(options.get("skip_signature")):
            plain["aws.credentials.provider"] = f"{_PROVIDERS}AnonymousAWSCredentialsProvider"
    return {prefix + name: v for name, v in plain.items()}, {prefix + name: v for name, v in secret.items()}


def _is_own(bucket: str, name: str, own: Mapping[str, Any]) -> bool:
    return any(key in own for key in (_S3A + name, f"{_S3A}bucket.{bucket}.{name}"))


def _has_own_keys(bucket: str, own: Mapping[str, Any]) -> bool:
    return any(_is_own(bucket, name, own) for name in _CREDENTIALS)


def _hadoop(place: Place) -> Mapping[str, str]:
    """Return the settings with which Hadoop asks the catalog of a table for keys; none if it has no such catalog."""
    found: Mapping[str, str] = getattr(place.options.get("credential_provider"), "hadoop", {})
    return found


def _bucket(uri: str) -> str:
    """Return the bucket of a URI, with its scheme left out: ``s3`` and ``s3a`` are one; empty for a path."""
    return uri.partition("://")[2].partition("/")[0]


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
        if _scheme(place.uri) in S3_SCHEMES and _bucket(place.uri) == bucket:
            conn_id = place.options.get("storage_conn_id")
            ways.append(f"{place.uri} by " + ("the environment" if conn_id is None else f"connection {conn_id!r}"))
    return ", ".join(ways)


def _scheme(uri: str) -> str:
    name, found, _ = uri.partition("://")
    return name.lower() if found else "file"


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes", "on")
