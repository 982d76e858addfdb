"""Converts errors of the object store client into errors of FDS, retryable or not."""

from __future__ import annotations

import re
from typing import Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from airflow_provider_fds.errors import AccessDeniedError, RequestRefusedError, StorageError
from airflow_provider_fds.reasons import Reason

#: Wrong or expired credentials: the client has no error class for most of these, only their text, and S3 answers some
#: of them with 400.
_DENIED: Final = re.compile(
    r"status code: 40[13]\b|<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|AuthenticationFailed)\b"
)
#: The catalog gave none when the client needed credentials: it hides the error in its own, of wrong credentials.
_NONE_GIVEN: Final = re.compile(r"External \w+ credential provider: (StorageError|AccessDeniedError): (.*)")
_EXPIRED: Final = re.compile(r"expired", re.IGNORECASE)
_BAD_REQUEST: Final = re.compile(r"status code: 400\b")
#: Other answers that are permanent. Excluded are 404, which is a value; 408, 409 and 429; and 412 and 416, which a
#: reader gets if its object was replaced in the meantime.
_REFUSED: Final = re.compile(
    r"status code: (30\d|400|405|411|413|414|431)\b|incorrectly configured region|<Code>NoSuchBucket<"
)
#: Connection faults that S3 answers with 400.
_PASSING: Final = re.compile(r"<Code>(RequestTimeout|IncompleteBody|BadDigest)<")
#: Where the client looks for credentials if it was given none.
_METADATA_SERVICE: Final = re.compile(r"169\.254\.(169\.254|170\.2)|metadata\.google\.internal")
_QUERY: Final = re.compile(r"(https?://[^\s?]+)\?\S*")
#: The client repeats requests, but not a listing whose body was interrupted.
_LISTING_BROKE_OFF: Final = "list response body"


def storage_error(error: BaseException, *, doing: str, where: str, table: str, credentials: str) -> StorageError:
    """Return the error of FDS for an error of the client.

    Args:
        error: What the client raised.
        doing: What was done, such as ``"reading"``.
        where: URI of the object.
        table: URI of the table or folder.
        credentials: Whose credentials they are, in words.
    """
    text = cause(error)
    what = f"{doing} {where}"
    if (found := _NONE_GIVEN.search(text)) is not None:
        text = f"{what}: no credentials ({found[2]})"
        if found[1] == "AccessDeniedError":
            return AccessDeniedError(text, table=table, reason=Reason.CATALOG_DENIED)
        return StorageError(text, table=table, reason=Reason.CATALOG_UNAVAILABLE)
    is_expired = _EXPIRED.search(text) is not None
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or _DENIED.search(text):
        if is_expired:
            return AccessDeniedError(
                f"{what}: {credentials} have expired ({text}); renew them, then run the task again",
                table=table,
                reason=Reason.CREDENTIALS_EXPIRED,
            )
        return AccessDeniedError(
            f"{what}: access denied ({text}). Check {credentials}: they must be allowed to list, to read and, in "
            "staging, to write",
            table=table,
        )
    if doing in ("looking at", "opening") and _BAD_REQUEST.search(text):
        return AccessDeniedError(
            f"{what}: refused without a reason ({text}). S3 answers a HEAD request like this if the token has "
            f"expired or the region is wrong; check {credentials} and the region",
            table=table,
        )
    if _REFUSED.search(text) and not _PASSING.search(text):
        return RequestRefusedError(f"{what}: refused ({text}); check the URI, the endpoint and the region", table=table)
    if _METADATA_SERVICE.search(text):
        text += (
            "; no credentials were given, and the environment has none. Set storage_conn_id to an Airflow "
            "connection, or set the cloud's environment variables"
        )
    return StorageError(f"{what}: {text}", table=table)


def has_listing_broken_off(error: StorageError) -> bool:
    """Whether a listing was interrupted within an answer, the only read that the client does not repeat itself."""
    return error.retryable and _LISTING_BROKE_OFF in str(error)


def cause(error: BaseException) -> str:
    """Return the error's text on one line, without query strings, which hold signatures in Azure."""
    text = _QUERY.sub(r"\1?…", str(error)).split("\n\nDebug source:", 1)[0]
    return " ".join(text.split())
