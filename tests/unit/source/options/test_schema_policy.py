"""Which changes of a schema a stream passes by itself, and what it says before those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.delta.schema import ColumnChange, SchemaChange
from airflow_provider_fds.errors import ConfigurationError, SchemaChangedError, ViolationError
from airflow_provider_fds.source.changes.barrier import Allowances
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.options.schema_policy import DEFAULTS, SchemaPolicy, installation_rules, schema_rules
from airflow_provider_fds.source.planned import PassedSchemaChange

MAPPED = {"delta.columnMapping.mode": "name"}
MAPPING = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["columnMapping", "typeWidening"],
    "writerFeatures": ["columnMapping", "typeWidening"],
}


def column(builder: Any, name: str, physical: str, kind: str = "integer") -> dict[str, Any]:
    number = int(physical.removeprefix("c"))
    named = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return builder.field(name, kind, **named)


def changed_to(builder: Any, *after: tuple[str, str, str]) -> None:
    """Write version 0 with the columns id and name, an append, version 2 with other columns, an append."""
    before = [column(builder, "id", "c1"), column(builder, "name", "c2", "string")]
    builder.create(before, protocol=MAPPING, configuration=MAPPED)
    builder.append()
    columns = [column(builder, *one) for one in after]
    builder.commit(builder.metadata(columns, configuration=MAPPED), operation="ALTER TABLE")
    builder.append()


#: Kind of change -> the columns after it, and the line of the diff.
CHANGES: dict[str, tuple[list[tuple[str, str, str]], str]] = {
    "add": ([("id", "c1", "integer"), ("name", "c2", "string"), ("more", "c3", "date")], "+ more: date"),
    "widen": ([("id", "c1", "long"), ("name", "c2", "string")], "~ id: integer -> long"),
    "rename": ([("id", "c1", "integer"), ("label", "c2", "string")], "~ name -> label"),
    "drop": ([("id", "c1", "integer")], "- name: string"),
    "type": ([("id", "c1", "integer"), ("name", "c2", "date")], "~ name: string -> date"),
}


def passes(found: Any, line: str, allowed_by: str) -> None:
    """Check that all is delivered, in batches that end before version 2, with the change on record."""
    assert found.outcome.error is None
    assert [(batch.first_version, batch.last_version) for batch in found.batches] == [(0, 1), (2, 3)]
    assert found.batches[0].schema_changes == ()
    assert found.batches[1].schema_changes == (PassedSchemaChange(2, (line,), allowed_by),)


def stops(found: Any) -> str:
    assert [batch.last_version for batch in found.batches] == [1]
    assert isinstance(found.outcome.error, SchemaChangedError)
    assert found.outcome.error.version == 2
    assert found.outcome.error.way_on == "accept"
    return str(found.outcome.error)


@pytest.mark.parametrize("kind", CHANGES)
def test_without_a_policy_additions_and_wider_types_pass_and_the_others_ask(
    plan: Any, log_builder: Any, kind: str
) -> None:
    columns, line = CHANGES[kind]
    changed_to(log_builder, *columns)
    if kind in ("add", "widen"):
        passes(plan(0), line, f"{kind!r}: 'follow' is the default")
        return
    message = stops(plan(0))
    assert f"version 2 changes the schema:\n  {line}\nThe stream stops before version 2" in message
    assert ("`fds replan STREAM --new-sink --why …`" in message) is (kind == "type")
    assert f"({kind!r}: 'ask' is the default)" in message
    for way in ("`fds accept STREAM --version 2 --why …`", "accepted_schema_version=2", "on_schema_change"):
        assert way in message
    passes(plan(0, accepted_schema_version=2), line, "accepted_schema_version=2")


@pytest.mark.parametrize("kind", ["add", "widen", "rename", "drop"])
def test_a_change_that_the_stream_follows_passes_and_its_rule_is_recorded(
    plan: Any, log_builder: Any, kind: str
) -> None:
    columns, line = CHANGES[kind]
    changed_to(log_builder, *columns)
    rule = {kind: "follow"}
    passes(plan(0, on_schema_change=rule), line, f"on_schema_change={rule}")
    of_installation = Allowances(schema_changes=schema_rules(rule))
    passes(plan(0, allowances=of_installation), line, f"[fds] on_schema_change={rule}")
    if kind in ("rename", "drop"):
        assert f"on_schema_change={rule}, which follows every such change" in stops(plan(0))


@pytest.mark.parametrize("kind", CHANGES)
def test_a_rule_that_names_a_version_follows_the_change_of_that_version_only(
    plan: Any, log_builder: Any, kind: str
) -> None:
    columns, line = CHANGES[kind]
    changed_to(log_builder, *columns)
    passes(plan(0, on_schema_change={kind: 2}), line, f"on_schema_change={ {kind: 2} }")
    assert f"on_schema_change={ {kind: 3} }" in stops(plan(0, on_schema_change={kind: 3}))


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_that_fails_needs_a_person_not_an_option(plan: Any, log_builder: Any, kind: str) -> None:
    columns, line = CHANGES[kind]
    changed_to(log_builder, *columns)
    rule = {"on_schema_change": {kind: "fail"}}
    message = stops(plan(0, **rule, accepted_schema_version=2))
    assert f"on_schema_change={ {kind: 'fail'} }" in message
    assert "accepted_schema_version=2 on the stream is not enough where a rule is 'fail'" in message
    person = Allowances({2: "accepted by ann: the sink is ready"})
    passes(plan(0, **rule, allowances=person), line, "accepted by ann: the sink is ready")


def test_a_stream_takes_precedence_over_the_installation_kind_by_kind(plan: Any, log_builder: Any) -> None:
    columns, line = CHANGES["rename"]
    changed_to(log_builder, *columns)
    installation = Allowances(schema_changes=schema_rules("rename=fail,drop=follow"))
    stops(plan(0, allowances=installation))
    own = {"rename": "follow"}
    passes(plan(0, on_schema_change=own, allowances=installation), line, "on_schema_change={'rename': 'follow'}")
    assert SchemaPolicy(schema_rules(own), installation.schema_changes).rule_of("drop").rule == "follow"


def test_a_version_with_several_changes_passes_only_if_each_of_them_may(plan: Any, log_builder: Any) -> None:
    changed_to(log_builder, ("label", "c2", "string"), ("more", "c3", "date"))
    message = stops(plan(0, on_schema_change={"rename": "follow"}))
    assert "\n  - id: integer\n  ~ name -> label\n  + more: date\n" in message
    assert "('drop': 'ask' is the default)" in message
    found = plan(0, on_schema_change={"rename": "follow"}, accepted_schema_version=2)
    (passed,) = found.batches[1].schema_changes
    assert passed.allowed_by == (
        "accepted_schema_version=2; on_schema_change={'rename': 'follow'}; 'add': 'follow' is the default"
    )


def test_no_rule_follows_a_change_of_nullability_or_partitions() -> None:
    policy = SchemaPolicy(schema_rules(dict.fromkeys(["add", "widen", "rename", "drop"], "follow")))
    relaxed, tightened = (
        SchemaChange((ColumnChange("other", "~ id", is_additive=is_additive),)) for is_additive in (True, False)
    )
    assert policy.judge(relaxed, 2, accepted_schema_version=None, accepted=None).refused == ()
    assert policy.judge(tightened, 2, accepted_schema_version=None, accepted=None).refused
    assert policy.judge(tightened, 2, accepted_schema_version=2, accepted=None).refused == ()


def test_a_followed_change_lets_only_the_schema_pass_and_not_the_rows_of_its_commit(
    plan: Any, log_builder: Any
) -> None:
    log_builder.create([log_builder.field("id"), log_builder.field("name")])
    log_builder.append()
    removed = log_builder.remove(next(iter(log_builder.live)))
    log_builder.commit(log_builder.metadata([log_builder.field("id")]), removed, operation="WRITE")
    found = plan(0, on_schema_change={"drop": "follow"})
    assert isinstance(found.outcome.error, ViolationError)
    assert found.outcome.error.version == 2


def test_a_plan_from_the_changed_version_on_records_the_change_and_one_after_it_does_not(
    plan: Any, log_builder: Any
) -> None:
    changed_to(log_builder, *CHANGES["drop"][0])
    rule = {"on_schema_change": {"drop": "follow"}}
    assert [one.version for one in plan(2, **rule).batches[0].schema_changes] == [2]
    assert plan(3, **rule).batches[0].schema_changes == ()


# the option


def problem(**given: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse(given)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("rename", "must be a dict such as"),
        ({}, "must be a dict such as"),
        ("", "must be a dict such as"),
        ("rename=ask,rename=follow", "must be a dict such as"),
        (["rename"], "must be a dict such as"),
        ({"reorder": "ask"}, "must name kinds of change (add, widen, rename, drop, type), got 'reorder'"),
        ({"rename": "allow"}, "must have 'follow', 'ask', 'fail' or a version for 'rename', got 'allow'"),
        ({"rename": True}, "got True"),
        ({"rename": -1}, "got -1"),
        ({"rename": 2**63}, "got 9223372036854775808"),
        ({"add": "ignore"}, "cannot have 'add': 'ignore', because a batch always has the source's columns"),
        ({"type": "follow"}, "cannot have 'type': 'follow', because no column of a sink holds values of both types"),
    ],
)
def test_an_invalid_policy_is_refused_with_the_reason(value: object, words: str) -> None:
    found = problem(on_schema_change=value)
    assert found.startswith("option 'on_schema_change' ")
    assert words in found


def test_a_rule_of_the_installation_names_no_version() -> None:
    assert installation_rules(" ") == ()
    assert installation_rules("rename=follow, drop=fail") == (("drop", "fail"), ("rename", "follow"))
    with pytest.raises(ValueError, match="cannot have the version 7 for 'drop', because a version belongs to one"):
        installation_rules("rename=follow,drop=7")


def test_every_kind_can_ask_fail_or_name_a_version() -> None:
    for kind in DEFAULTS:
        for rule in ("ask", "fail", 7):
            parsed = SourceOptions.parse({"on_schema_change": {kind: rule}})
            assert parsed.on_schema_change == ((kind, rule),)
            assert parsed.to_dict() == {"on_schema_change": {kind: rule}}
            assert SourceOptions.parse(parsed.to_dict()) == parsed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"allowSourceColumnRename": "always"}, {"rename": "follow"}),
        ({"allowsourcecolumndrop": "7"}, {"drop": 7}),
        ({"allow_source_column_rename_and_drop": 7}, {"rename": 7, "drop": 7}),
        ({"allowSourceColumnTypeChange": "ALWAYS"}, {"widen": "follow"}),
        ({"allowSourceColumnRename": "7", "on_schema_change": {"drop": "fail"}}, {"rename": 7, "drop": "fail"}),
        ({"allowSourceColumnRename": "7", "on_schema_change": {"rename": 7}}, {"rename": 7}),
        ({"allowSourceColumnRename": None}, {}),
    ],
)
def test_deltas_own_options_are_rules(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert dict(SourceOptions.parse(given).on_schema_change) == expected


@pytest.mark.parametrize("value", ["never", True, -1, "1.5", 2**63])
def test_deltas_own_options_have_deltas_values(value: object) -> None:
    found = problem(allowSourceColumnRename=value)
    assert found == f"option 'allowSourceColumnRename' must be 'always' or the version of the change, got {value!r}."


def test_two_options_with_different_rules_are_refused() -> None:
    found = problem(allowSourceColumnRename="always", on_schema_change={"rename": "ask"})
    assert found == (
        "options 'on_schema_change' and 'allowSourceColumnRename' have different rules for 'rename': 'ask' and "
        "'follow'. Set only one of them."
    )


@pytest.mark.parametrize("suffix", ["", ".ckpt_1234"])
def test_a_setting_of_deltas_session_names_the_option(suffix: str) -> None:
    found = problem(**{f"spark.databricks.delta.streaming.allowSourceColumnDrop{suffix}": "always"})
    assert "is a setting of a Spark session" in found
    assert "Give the stream the option 'allowSourceColumnDrop'." in found
