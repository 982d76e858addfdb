"""Requests to a Unity Catalog: bounded in time and size, repeated while it is busy, and never redirected."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import threading
import time
import weakref
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow_provider_fds.credentials import redacted, redacted_uri
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

_ROOT: Final = "/api/2.1/unity-catalog"
#: A table with ten thousand columns has about 5 MB.
MOST_BYTES: Final = 16 << 20
#: Names and addresses; other languages in their encoded form (``xn--``).
_HOST: Final = re.compile(r"[a-z0-9_.:%-]+")
_CONNECT_SECONDS: Final = 5.0
_SILENCE_SECONDS: Final = 20.0
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 8.0
_SHOWN: Final = 300
#: A token without a lifetime is asked for again after this time.
_TOKEN_SECONDS: Final = 600.0
_LEAD_SECONDS: Final = 60.0


class NoAnswerError(Exception):
    """There is no usable answer; the text says what came instead, without anything secret."""


class RefusedError(Exception):
    """The catalog refuses the credentials; the text is its answer, without anything secret."""


@dataclass(frozen=True)
class Answer:
    """An answer that a retry would not change: its status, and its content if that is a JSON object."""

    status: int
    body: Mapping[str, Any]

    def describe(self) -> str:
        """Return status and message in one line, without anything secret."""
        error = self.body.get("error")
        found = error if isinstance(error, dict) else self.body
        text = " ".join(str(found.get("message") or "").split())
        return redacted(f"{self.status}" + (f" ({text[:_SHOWN]})" if text else ""))


@dataclass(frozen=True)
class Login:
    """How a client proves who it is: with a token, or with the id and secret of a client (OAuth).

    Attributes:
        token: A token; empty: OAuth, or nobody asks.
        client_id: Id of the client, a service principal.
        client_secret: Its secret.
        token_url: Where tokens are given; empty: ``/oidc/v1/token`` of the catalog's host, as Databricks has it.
        scope: What the token is for.
    """

    token: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    token_url: str = ""
    scope: str = "all-apis"

    def token_address(self, host: str) -> str:
        """Return the URL that gives tokens to the client of ``https://host``."""
        return self.token_url or f"{host}/oidc/v1/token"


class UnityHttp:
    """Sends requests to one catalog as one principal. Used by many threads, and by the children of a fork.

    Args:
        url: ``https://host``, with or without the path of the API.
        login: How to prove who asks.
        timeout_seconds: The longest time for a request with all its repetitions.
        clock: Seconds that only grow, for tests.
        sleep: Waits, for tests.

    Raises:
        ConfigurationError: The URL is none, the login is incomplete or has a line break, or httpx is not installed.
    """

    def __init__(
        self,
        url: str,
        login: Login,
        *,
        timeout_seconds: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host, self._root = _parts(url)
        if not all(_is_sendable(text) for text in (login.token, login.client_id, login.client_secret) if text):
            raise ConfigurationError(
                f"the token or the client's secret for {self.host} has characters that a request cannot carry, such as "
                "a line break. Paste it again",
                reason=Reason.INVALID_OPTION,
            )
        if bool(login.client_id) != bool(login.client_secret) and not login.token:
            raise ConfigurationError(
                f"a client that asks {self.host} for tokens needs an id and a secret, and only one of them is given. "
                "Give both, or a token",
                reason=Reason.INVALID_OPTION,
            )
        if login.token_url:
            _parts(login.token_url, "token service (token_url)")
        self._login = login
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._client: tuple[int, httpx.Client] | None = None
        self._token = ("", 0.0)
        _httpx()

    def __repr__(self) -> str:
        return f"UnityHttp({self.host!r})"

    @property
    def principal(self) -> str:
        """What tells this catalog and principal from others, without anything secret."""
        secret = f"{self._login.token}\n{self._login.client_id}\n{self._login.client_secret}"
        return f"{self.host}{self._root} {hashlib.sha256(secret.encode()).hexdigest()}"

    def get(self, path: str, **query: str) -> Answer:
        """Return the answer to a GET of ``path`` below the root of the API.

        Raises:
            NoAnswerError: The catalog does not answer, stays busy, redirects, or sends too much or no JSON.
            RefusedError: It refuses the credentials (401), with OAuth also a fresh token.
        """
        return self._authorized("GET", path, query, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Return the answer to a POST, which may be sent more than once. Raises as :meth:`get`."""
        return self._authorized("POST", path, {}, body)

    def _authorized(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> Answer:
        deadline = self._clock() + self._timeout_seconds
        url = f"{self.host}{self._root}{path}"
        token = self._current_token(deadline)
        for attempt in range(2):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            answer = self._repeated(method, url, deadline, params=query, json=body, headers=headers)
            if answer.status != 401:  # noqa: PLR2004
                return answer
            if attempt or not self._login.client_id or self._login.token:
                break
            token = self._current_token(deadline, refused=token)
        raise RefusedError(answer.describe())

    def _current_token(self, deadline: float, refused: str = "") -> str:
        login = self._login
        if login.token or not login.client_id:
            return login.token
        with self._lock:
            token, until = self._token
            if token and token != refused and self._clock() < until:
                return token
            asked = self._clock()
            answer = self._repeated(
                "POST",
                login.token_address(self.host),
                deadline,
                data={"grant_type": "client_credentials", "scope": login.scope},
                auth=(login.client_id, login.client_secret),
            )
            fresh = answer.body.get("access_token")
            if answer.status in (400, 401, 403):
                raise RefusedError(f"its token service answers {answer.describe()}")
            if answer.status != 200 or not isinstance(fresh, str) or not _is_sendable(fresh):  # noqa: PLR2004
                raise NoAnswerError(f"its token service answers {answer.describe()} without a token")
            seconds = answer.body.get("expires_in")
            lifetime = float(seconds) if isinstance(seconds, (int, float)) else _TOKEN_SECONDS
            self._token = (fresh, asked + lifetime - min(_LEAD_SECONDS, lifetime / 4))
            return fresh

    def _repeated(self, method: str, url: str, deadline: float, **request: Any) -> Answer:
        attempt = 0
        while True:
            try:
                answer, retry_after = self._sent(method, url, deadline, **request)
                problem = f"it answers {answer.describe()}"
            except _httpx().RequestError as error:
                answer, retry_after, problem = None, None, f"{type(error).__name__} from {self.host}"
            if answer is not None and answer.status not in _BUSY:
                return answer
            pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt) * random.uniform(0.5, 1.5)  # noqa: S311
            pause = pause if retry_after is None else retry_after
            if self._clock() + pause >= deadline:
                asked = "" if retry_after is None else f", and asks to wait for {retry_after:.0f} s"
                raise NoAnswerError(f"{problem}{asked}")
            self._sleep(pause)
            attempt += 1

    def _sent(self, method: str, url: str, deadline: float, **request: Any) -> tuple[Answer, float | None]:
        httpx = _httpx()
        left = max(0.1, deadline - self._clock())
        timeout = httpx.Timeout(min(_SILENCE_SECONDS, left), connect=min(_CONNECT_SECONDS, left))
        content = bytearray()
        with self._opened().stream(method, url, timeout=timeout, **request) as response:
            if 300 <= response.status_code < 400:  # noqa: PLR2004
                target = urlsplit(response.headers.get("location", "")).hostname or "another page"
                raise NoAnswerError(
                    f"it redirects to {target} ({response.status_code}), such as to a login page. Correct the host of "
                    "the connection: that of a workspace contains its id"
                )
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise NoAnswerError(f"its answer has more than {MOST_BYTES >> 20} MB")
                if self._clock() > deadline:
                    raise NoAnswerError(f"its answer takes more than {self._timeout_seconds:.0f} s")
            status, headers = response.status_code, response.headers
        if status >= 300:  # noqa: PLR2004 - an error may repeat what was sent
            content = self._without_secrets(content)
        try:
            body = json.loads(content) if content else {}
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            if status < 300:  # noqa: PLR2004
                kind = headers.get("content-type", "").partition(";")[0] or "unknown type"
                raise NoAnswerError(f"it answers with no JSON object ({redacted(kind)[:50]})")
            body = {}
        return Answer(status, body), _retry_after(headers.get("retry-after"))

    def _without_secrets(self, content: bytearray) -> bytearray:
        for secret in filter(None, (self._login.token, self._login.client_secret, self._token[0])):
            content = content.replace(secret.encode(), b"***")
        return content

    def _opened(self) -> httpx.Client:
        with _CLIENTS:
            # connections cannot be shared with the parent of a fork
            if self._client is None or self._client[0] != os.getpid():
                client = _httpx().Client(follow_redirects=False)
                weakref.finalize(self, client.close).atexit = False
                self._client = (os.getpid(), client)
            return self._client[1]


_CLIENTS: Final = threading.Lock()


def _is_sendable(secret: str) -> bool:
    return secret != "" and secret.isascii() and secret.isprintable()


def _parts(url: str, what: str = "Unity Catalog") -> tuple[str, str]:
    text = url.strip()
    try:
        found = urlsplit(text if "://" in text else f"https://{text}")
        host = found.hostname or ""
        # what no resolver takes would be a UnicodeError at each request
        is_host = host.encode("idna") != b"" and _HOST.fullmatch(host) is not None
        is_sound = found.scheme in ("http", "https") and is_host and found.port != 0
    except ValueError:
        found, is_sound = urlsplit(""), False
    if not is_sound or found.username or found.password or found.query or found.fragment:
        raise ConfigurationError(
            f"the host of the {what} is {redacted_uri(text)!r}: expected https://<host>, without user, password "
            "and parameters",
            reason=Reason.INVALID_OPTION,
        )
    path = found.path.rstrip("/")
    path = path if path.endswith(_ROOT) else path + _ROOT
    return f"{found.scheme}://{found.netloc}", path


def _retry_after(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return max(0.0, float(text)) if text.strip().isdigit() else _until(text)
    except (ValueError, TypeError):
        return None


def _until(text: str) -> float:
    return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ConfigurationError(
            "tables of a Unity Catalog need httpx, which is not installed: pip install 'airflow-provider-fds[unity]'",
            reason=Reason.INVALID_CONFIGURATION,
        ) from None
    return httpx
