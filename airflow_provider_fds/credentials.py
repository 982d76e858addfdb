"""What is secret: names, values, texts and URIs. One definition for arguments, messages and checks.

Standard library only, Python 3.9 syntax: used in Airflow and on the Spark driver.
"""

from __future__ import annotations

import re
from functools import lru_cache

from airflow_provider_fds.schemes import SCHEMES, of_kind

#: Parts of a secret's name, and whole words within such a name.
_PART = (
    r"secret|passw(?:or)?d|passphrase|token|credential(?!s?[._]provider)|signature|authori[sz]ation|"
    r"(?:access|account|api|private|encryption|shared|fernet|storage|service)[._-]?key"
)
_WORD = r"pwd|pass|pat|sas|sig|auth"

#: ``name=``, ``name: ``, also within JSON and within a JSON string that contains JSON; and the value after it.
_NAME_AND_SIGN = re.compile(r"""(?<![\w.-])([\w.-]+)\\*["']?\s*[=:]\s*""")
_VALUE = re.compile(r"""(\\*["'])(?:(?!\1).){1,20000}\1|(?!\*\*\*)[^\s,;&"')}\\]+""", re.DOTALL)
#: After these words, ``pass:`` is the verb: "the tests pass: 3".
_BEFORE_VERB = re.compile(
    r"(?i)(?<![\w.-])(?:to|not|all|may|can|cannot|must|should|will|would|they|tests|checks|cases|rows|versions)[ ]\Z"
)
_BEFORE_VERB_CHARACTERS = 12
#: In these schemes the part before ``@`` is a container, not a user.
_CONTAINERS = tuple(name for name in of_kind("azure") if name != "az")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
#: The target of a ``PostgresSink``, as a stream is bound to it.
_SINK_IN_DATABASE = re.compile(r"postgres://[^?#]*\?(?:account=[^&#=]*|mode=[a-z]*)(?:&mode=[a-z]*)?")
_URI_USER = re.compile(r"(?<=//)([^/?#]*)(?:@|%40)")


@lru_cache(maxsize=1)
def _texts() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return what looks like a credential in a text, with what to write instead; compiling takes a millisecond."""
    # the @ may be encoded, or the slashes may be missing
    user_info = "".join(f"(?<!{scheme})" for scheme in _CONTAINERS) + r"://[^/\s@'\"]{1,20000}(?:@|%40)"
    login_in_uri = r"//[^/\s@:'\"]{0,1000}:[^/\s@'\"]{1,20000}(?:@|%40)"
    user_without_slashes = (
        rf"(?i)\b((?:{'|'.join(sorted(SCHEMES, reverse=True))}|https?):)(?!//)[^\s@'\"]{{1,20000}}(?:@|%40)"
    )
    private_key = r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    texts = (
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}", r"\1 ***"),
        (user_info, "://***@"),
        (login_in_uri, "//***@"),
        (user_without_slashes, r"\1***@"),
        (r"(?i)([?&](?:sig|se|sp|sv|x-amz-[\w-]+)=)[^&\s]+", r"\1***"),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "***"),
        (r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", "***"),
        (private_key, "***"),
    )
    return tuple((re.compile(pattern), instead) for pattern, instead in texts)


@lru_cache(maxsize=1)
def _name() -> re.Pattern[str]:
    """Return the pattern of a secret's name, which is compiled for the first name: many a process has none."""
    return re.compile(rf"(?i)(?:{_PART})|(?<![A-Za-z])(?:{_WORD})(?![A-Za-z])")


def is_secret(name: str, value: object = None) -> bool:
    """Whether a setting or environment variable is secret, judging by its name or its value."""
    return _name().search(name) is not None or (isinstance(value, str) and redacted(value) != value)


def redacted(text: str) -> str:
    """Return the text without anything that looks like a credential."""
    for pattern, replacement in _texts():
        text = pattern.sub(replacement, text)
    return _without_secret_pairs(text)


def _without_secret_pairs(text: str) -> str:
    shown, position = [], 0
    for found in _NAME_AND_SIGN.finditer(text):
        if found.start() < position or _name().search(found[1]) is None or _is_verb(text, found):
            continue
        end = _end_of_value(text, found.end())
        if end is not None:
            shown += [text[position : found.end()], "***"]
            position = end
    return "".join([*shown, text[position:]])


def _end_of_value(text: str, start: int) -> int | None:
    """Return where the value at ``start`` ends, or ``None`` if there is none.

    If it looks like another secret's name (``credentials: password: …``), the value of that name is part of it.
    """
    end = None
    while (value := _VALUE.match(text, start)) is not None:
        end = value.end()
        name = _NAME_AND_SIGN.match(text, start)
        if name is None or _name().search(name[1]) is None:
            break
        start = name.end()
    return end


def _is_verb(text: str, found: re.Match[str]) -> bool:
    """Whether the name is the word ``pass`` of a sentence."""
    if found[1] != "pass" or not found[0].startswith("pass: "):
        return False
    return _BEFORE_VERB.search(text[max(0, found.start() - _BEFORE_VERB_CHARACTERS) : found.start()]) is not None


def redacted_uri(uri: str) -> str:
    """Return ``uri`` with possible secrets replaced by ``***``: user info, query and fragment."""
    head, mark, _ = uri.partition("?") if "?" in uri else uri.partition("#")
    if _scheme_of(uri) not in _CONTAINERS or ":" in _user_info(uri):
        head = _URI_USER.sub("***@", head)
    return head + (f"{mark}***" if mark else "")


def secret_part(uri: str) -> str | None:
    """Return in words which part of ``uri`` may hold a credential, or ``None`` if none does.

    The container of an Azure URI (``abfss://container@account…``) is not a credential.
    """
    user = _user_info(uri)
    if user and (":" in user or _scheme_of(uri) not in _CONTAINERS):
        return "user info before the @"
    if "?" in uri and not _SINK_IN_DATABASE.fullmatch(uri):
        return "a query after the ?"
    if "#" in uri:
        return "a fragment after the #"
    return None


def _scheme_of(uri: str) -> str | None:
    match = _SCHEME.match(uri)
    return match.group().lower() if match else None


def _user_info(uri: str) -> str:
    match = _URI_USER.search(uri)
    return match.group(1) if match else ""
