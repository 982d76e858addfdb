"""Which changes of a table's schema a stream passes by itself: the option ``on_schema_change``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from airflow_provider_fds.delta.schema import ColumnChangeKind, SchemaChange

#: Name of the option, and of the setting in ``[fds]``.
OPTION: Final = "on_schema_change"

#: Kind of change -> what happens at it: ``"follow"``, ``"ask"``, ``"fail"``, or the version whose change is followed.
Rules = tuple[tuple[str, str | int], ...]

#: What happens without a rule. The kinds are those that a rule can name.
DEFAULTS: Final[Mapping[str, str]] = {
    "add": "follow",
    "widen": "follow",
    "rename": "ask",
    "drop": "ask",
    "type": "ask",
}

#: Options of Delta in snake case -> the kinds of change they are about. The only changes of type that Delta's stream
#: can pass are wider types.
DELTA_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "allow_source_column_rename": ("rename",),
    "allow_source_column_drop": ("drop",),
    "allow_source_column_rename_and_drop": ("rename", "drop"),
    "allow_source_column_type_change": ("widen",),
}

#: Delta has the same names as settings of the Spark session, for one stream with the suffix ``.ckpt_<hash>``.
DELTA_SETTINGS: Final = "spark.databricks.delta.streaming."

_WORDS: Final = ("follow", "ask", "fail")
_FORM: Final = "must be a dict such as {'rename': 'follow', 'drop': 'ask'}, or the same as 'rename=follow,drop=ask'"
_LARGEST: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


def schema_rules(value: object) -> Rules:
    """Parse ``on_schema_change``: a mapping, or ``"rename=follow,drop=7"``.

    Returns:
        The rules by kind, sorted.

    Raises:
        ValueError: The end of a sentence that begins with the option's name.
    """
    given = _of_text(value) if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f"{_FORM}, got {value!r}")
    return tuple(sorted((_kind(kind), _rule(kind, rule)) for kind, rule in given.items()))


def installation_rules(text: str) -> Rules:
    """Parse ``[fds] on_schema_change``: as :func:`schema_rules`, without versions, or empty.

    Raises:
        ValueError: The end of a sentence that begins with the setting's name.
    """
    rules = schema_rules(text) if text.strip() else ()
    versions = [(kind, rule) for kind, rule in rules if isinstance(rule, int)]
    if versions:
        kind, version = versions[0]
        raise ValueError(
            f"cannot have the version {version} for {kind!r}, because a version belongs to one table. Set it on the "
            "stream of that table"
        )
    return rules


def delta_rules(option: str, value: object) -> Rules:
    """Parse one of :data:`DELTA_OPTIONS`: ``always``, or the version of the change.

    Raises:
        ValueError: The end of a sentence that begins with the option's name.
    """
    text = str(value).strip()
    is_version = not isinstance(value, bool) and _NUMBER.fullmatch(text) is not None and int(text) <= _LARGEST
    if text.lower() != "always" and not is_version:
        raise ValueError(f"must be 'always' or the version of the change, got {value!r}")
    rule: str | int = int(text) if is_version else "follow"
    return tuple(sorted((kind, rule) for kind in DELTA_OPTIONS[option]))


def merged_rules(given: Mapping[str, Rules]) -> tuple[Rules, list[str]]:
    """Return the rules of several options together, and what is wrong with them.

    Args:
        given: Spelling of each option -> its rules.
    """
    found: dict[str, tuple[str, str | int]] = {}
    problems = []
    for spelling, rules in given.items():
        for kind, rule in rules:
            first, other = found.setdefault(kind, (spelling, rule))
            if other != rule:
                problems.append(
                    f"options {first!r} and {spelling!r} have different rules for {kind!r}: {other!r} and {rule!r}. "
                    "Set only one of them."
                )
    return tuple(sorted((kind, rule) for kind, (_, rule) in found.items())), problems


def shown_rules(rules: Rules) -> dict[str, str | int]:
    """Return the rules in the form that :func:`schema_rules` parses and a DAG file has."""
    return dict(rules)


def _of_text(text: str) -> dict[str, str] | None:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(separator for _, separator, _ in pairs):
        return None
    found = {kind.strip(): rule.strip() for kind, _, rule in pairs}
    return found if len(found) == len(pairs) else None


def _kind(kind: object) -> str:
    if isinstance(kind, str) and kind in DEFAULTS:
        return kind
    raise ValueError(f"must name kinds of change ({', '.join(DEFAULTS)}), got {kind!r}")


def _rule(kind: object, rule: object) -> str | int:
    if rule == "ignore":
        raise ValueError(
            f"cannot have {kind!r}: 'ignore', because a batch always has the source's columns. To keep a column out of "
            "the sink, list the sink's columns there (columns=…) and use 'follow'"
        )
    if kind == "type" and rule == "follow":
        raise ValueError(
            "cannot have 'type': 'follow', because no column of a sink holds values of both types. Use 'ask', or "
            "the version of the one change that you have prepared the sink for"
        )
    if isinstance(rule, str) and rule in _WORDS:
        return rule
    is_number = isinstance(rule, str) and _NUMBER.fullmatch(rule) is not None
    number = int(str(rule)) if is_number else rule
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _LARGEST:
        return number
    raise ValueError(f"must have 'follow', 'ask', 'fail' or a version for {kind!r}, got {rule!r}")


class AppliedRule(NamedTuple):
    """A rule for a kind of change, and where it comes from.

    Attributes:
        kind: The kind.
        rule: ``"follow"``, ``"ask"``, ``"fail"`` or a version.
        source: Name of the option or of the setting in ``[fds]``, or ``"default"``.
    """

    kind: ColumnChangeKind
    rule: str | int
    source: str

    def describe(self) -> str:
        """Return the rule as an option, or as the default."""
        if self.source == "default":
            return f"{self.kind!r}: {self.rule!r} is the default"
        return f"{self.source}={ {self.kind: self.rule} }"


class SchemaVerdict(NamedTuple):
    """Whether a version with another schema may be passed.

    Attributes:
        allowed_by: What lets the stream pass, in words for the ledger.
        refused: The rules that do not let it pass; empty if it may.
    """

    allowed_by: str
    refused: tuple[AppliedRule, ...]


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """Decides about changes of the schema.

    Args:
        stream: The rules of the stream.
        installation: The rules of ``[fds]``, for kinds that the stream has no rule for.
    """

    stream: Rules = ()
    installation: Rules = ()

    def rule_of(self, kind: ColumnChangeKind) -> AppliedRule:
        """Return the rule for a kind of change."""
        for rules, name in ((dict(self.stream), OPTION), (dict(self.installation), f"[fds] {OPTION}")):
            if kind in rules:
                return AppliedRule(kind, rules[kind], name)
        return AppliedRule(kind, DEFAULTS.get(kind, "ask"), "default")

    def judge(
        self, change: SchemaChange, version: int, *, accepted_schema_version: int | None, accepted: str | None
    ) -> SchemaVerdict:
        """Return whether the stream may pass ``version``, whose commit makes ``change``.

        Args:
            change: The differences; at least one.
            version: The version.
            accepted_schema_version: The option of the stream, which answers ``"ask"``.
            accepted: Who accepted the schema of this version in the ledger, and why; answers ``"ask"`` and ``"fail"``.
        """
        allowed: dict[str, None] = {}
        refused: dict[AppliedRule, None] = {}
        for one in change.columns:
            if one.kind == "other" and one.is_additive:
                allowed["default"] = None
                continue
            applied = self.rule_of(one.kind)
            if applied.rule in ("follow", version):
                allowed[applied.describe()] = None
            elif accepted is not None:
                allowed[accepted] = None
            elif applied.rule != "fail" and accepted_schema_version is not None and version <= accepted_schema_version:
                allowed[f"accepted_schema_version={accepted_schema_version}"] = None
            else:
                refused[applied] = None
        return SchemaVerdict("; ".join(allowed), tuple(refused))
