"""Credentials that a catalog gives for one table, to read: kept until shortly before they expire, never stored."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.schemes import with_plain_scheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LONGEST_LEAD_SECONDS: Final = 300.0
#: The part of a lifetime that is left when credentials are renewed: of 20 s, 5 s.
_LEAD: Final = 0.25
#: Pause after a failed request for credentials.
_PAUSE_SECONDS: Final = 5.0
_MOST_PROVIDERS: Final = 2_000
#: In the past: obstore asks again for each request.
_ENDED: Final = datetime.fromtimestamp(0, UTC)

#: By kind of store, how the API names a credential and how obstore does.
_NAMES: Final[tuple[dict[str, str], ...]] = (
    {
        "s3.access-key-id": "access_key_id",
        "s3.secret-access-key": "secret_access_key",
        "s3.session-token": "token",
    },
    {"azure.sas-token": "sas_token"},
    {"gcs.oauth-token": "token"},
)
_OPTIONAL: Final = "s3.session-token"


class NoCredentialsError(Exception):
    """The answer has no credentials for the table; the text says why, after "it"."""


@dataclass(frozen=True)
class Credentials:
    """Credentials for a prefix.

    Attributes:
        config: What obstore calls them; without ``expires_at``.
        expires_at: Seconds since the epoch; ``None``: never.
    """

    config: Mapping[str, str] = field(repr=False)
    expires_at: float | None


def chosen(items: Iterable[Any], location: str) -> Credentials:
    """Return the credentials with the longest prefix that covers ``location``.

    Args:
        items: ``storage-credentials`` of an answer.
        location: URI of the table.

    Raises:
        NoCredentialsError: None covers it, or one that does has an unknown form.
    """
    covering = [item for item in items if isinstance(item, dict) and _covers(item.get("prefix"), location)]
    if not covering:
        raise NoCredentialsError(f"gives no credentials for {location}, only for other folders")
    best = max(covering, key=lambda item: (len(str(item["prefix"]).rstrip("/")), item.get("operation") == "READ"))
    config = best.get("config")
    given = config if isinstance(config, dict) else {}
    for names in _NAMES:
        if all(isinstance(given.get(name), str) and given[name] for name in names if name != _OPTIONAL):
            expires_ms = best.get("expiration-time-ms")
            is_number = isinstance(expires_ms, (int, float)) and expires_ms > 0
            return Credentials(
                {ours: given[name] for name, ours in names.items() if given.get(name)},
                float(expires_ms) / 1000 if is_number else None,  # type: ignore[arg-type]
            )
    raise NoCredentialsError(
        f"gives credentials of a form that FDS does not know: {', '.join(sorted(given)) or 'none'}"
    )


class VendedCredentials:
    """A ``credential_provider`` of obstore for one table.

    obstore calls it for each request, because it is told that they have ended: it would keep them until five minutes
    before the end, even if storage refuses them. So they are kept here, and renewed when a quarter of the lifetime is
    left, at most five minutes, and after :meth:`forget`. If a renewal fails, the old credentials are used until they
    expire; after that, requests fail without asking for a few seconds.

    Args:
        fetch: Asks the catalog; raises ``FdsError``.
        clock: Seconds since the epoch, for tests.

    Attributes:
        hadoop: Settings with which Hadoop asks the catalog itself, by their full names; some are secret. Empty: it
            cannot.
    """

    def __init__(self, fetch: Callable[[], Credentials], *, clock: Callable[[], float] = time.time) -> None:
        self.fetch = fetch
        self.hadoop: Mapping[str, str] = {}
        self._clock = clock
        self._lock = threading.Lock()
        self._held: Credentials | None = None
        self._refused: object = None
        self._renew_at = math.inf
        self._failure: FdsError | None = None
        self._retry_at = 0.0

    def __repr__(self) -> str:
        return "VendedCredentials()"

    def __call__(self) -> dict[str, Any]:
        """Return the credentials as obstore takes them. Sends a request if they must be renewed."""
        return {**self.current().config, "expires_at": _ENDED}

    @property
    def held(self) -> Credentials | None:
        """The credentials that the next request gets, unless they must be renewed. Sends no request."""
        return self._held

    def forget(self, refused: object) -> None:
        """Renew before the next request, unless that was done since ``refused`` was :attr:`held`. Does not block."""
        # many reads are refused at once: compared by what they used, they renew once
        self._refused = refused

    def current(self) -> Credentials:
        """Return credentials that are good for a while. Raises ``FdsError`` if there are none."""
        with self._lock:
            now = self._clock()
            if self._held is not None and self._held is not self._refused and now < self._renew_at:
                return self._held
            if self._failure is None or now >= self._retry_at:
                self._renew(now)
            if self._failure is not None and not self._serves():
                raise self._failure
            return self._held  # type: ignore[return-value] # without a failure, there are some

    def _serves(self) -> bool:
        held = self._held
        if held is None or held is self._refused:
            return False
        return held.expires_at is None or self._clock() < held.expires_at

    def _renew(self, now: float) -> None:
        try:
            held = self.fetch()
        except FdsError as error:
            # those that wait for the lock share it: dozens of reads wait, and each would ask for as long as this one
            self._failure, self._retry_at = error, self._clock() + _PAUSE_SECONDS
            return
        self._held, self._failure, self._renew_at = held, None, math.inf
        if held.expires_at is not None:
            self._renew_at = held.expires_at - min(_LONGEST_LEAD_SECONDS, (held.expires_at - now) * _LEAD)


_PROVIDERS: Final[OrderedDict[tuple[str, ...], VendedCredentials]] = OrderedDict()
_REGISTRY_LOCK: Final = threading.Lock()


def provider(
    key: tuple[str, ...], fetch: Callable[[], Credentials], hadoop: Mapping[str, str] | None = None
) -> VendedCredentials:
    """Return the provider of ``key`` in this process: stores of obstore are cached by it.

    Args:
        key: The principal, the table, its location, the operation.
        fetch: Asks the catalog; the newest one is used.
        hadoop: See :class:`VendedCredentials`.
    """
    with _REGISTRY_LOCK:
        found = _PROVIDERS.get(key)
        if found is None:
            found = _PROVIDERS[key] = VendedCredentials(fetch)
        found.fetch, found.hadoop = fetch, hadoop or {}
        _PROVIDERS.move_to_end(key)
        while len(_PROVIDERS) > _MOST_PROVIDERS:
            _PROVIDERS.popitem(last=False)
        return found


def _covers(prefix: object, location: str) -> bool:
    if not isinstance(prefix, str) or "://" not in prefix:
        return False
    folder = with_plain_scheme(prefix).rstrip("/")
    return f"{with_plain_scheme(location).rstrip('/')}/".startswith(f"{folder}/")
