"""The REST servers of clusters: a question to one of them."""

from __future__ import annotations

import json
import os
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.spark.clusters.cluster import ClusterError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import httpx

#: How long a server may take for an answer.
SECONDS: Final = 10.0
#: How large an answer may be.
_MOST_BYTES: Final = 10_000_000


def ask(
    method: str,
    url: str,
    server: str,
    *,
    headers: Mapping[str, str],
    body: dict[str, Any] | None = None,
    follow_redirects: bool = False,
    verify: ssl.SSLContext | None = None,
) -> tuple[int, dict[str, Any]]:
    """Return status and answer of a server, also to a request that it refuses.

    Args:
        method: Of HTTP.
        url: The question.
        server: What answers there, for messages: ``YARN's ResourceManager``.
        headers: Those that the server wants.
        body: Sent as JSON.
        follow_redirects: Whether a server may name another one.
        verify: Which certificates are trusted; default: those of this machine.

    Raises:
        ClusterError: There is no answer, or none in JSON, or ``url`` is not an address.
    """
    import httpx

    send: Callable[..., AbstractContextManager[httpx.Response]]
    if method == "GET" and verify is None:
        send = _client(os.getpid()).stream
    else:
        # what changes something has a new connection: it would be lost on one that the server is about to close
        send = partial(httpx.stream, verify=verify or _certificates())
    try:
        with send(
            method, url, json=body, headers=dict(headers), timeout=SECONDS, follow_redirects=follow_redirects
        ) as response:
            answer = json.loads(_content(response))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
        said = str(error) or type(error).__name__
        raise ClusterError(f"{url} does not answer as {server} does: {said}") from error
    if not isinstance(answer, dict):
        raise ClusterError(f"{url} answers {answer!r}")
    return response.status_code, answer


def text(url: str, *, headers: Mapping[str, str] | None = None, verify: ssl.SSLContext | None = None) -> str:
    """Return a text, empty if there is none; raises nothing. Arguments are those of :func:`ask`."""
    import httpx

    given = dict(headers or {})
    try:
        with httpx.stream("GET", url, headers=given, timeout=SECONDS, verify=verify or _certificates()) as response:
            found = _content(response).decode(errors="replace")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return ""
    return found if response.status_code == httpx.codes.OK else ""


def _content(response: httpx.Response) -> bytes:
    """Return the body of an answer.

    Raises:
        ValueError: It does not end within :data:`SECONDS`, or is too large.
    """
    until = time.monotonic() + SECONDS
    found = bytearray()
    for part in response.iter_bytes():
        found += part
        if time.monotonic() > until:
            raise ValueError(f"the answer did not end within {SECONDS:.0f} s")
        if len(found) > _MOST_BYTES:
            raise ValueError(f"the answer has more than {_MOST_BYTES} bytes")
    return bytes(found)


@cache
def _client(_process: int) -> httpx.Client:
    """Return the client of a process, which keeps connections: a fork must not have those of its parent."""
    import httpx

    return httpx.Client(verify=_certificates())


@cache
def _certificates() -> ssl.SSLContext:
    """Return what a client makes for each request otherwise, which takes longer than the request."""
    import httpx

    return httpx.create_ssl_context()
