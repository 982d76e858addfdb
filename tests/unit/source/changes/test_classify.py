"""The truth table: what becomes of a commit, by what it holds and by the options. Numbers: conformance cases."""

from __future__ import annotations

from itertools import permutations

import pytest

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.delta.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove, Txn
from airflow_provider_fds.errors import StoppedError, ViolationError
from airflow_provider_fds.source.changes.classify import CommitContent, Emit, Skip, Stop, classify
from airflow_provider_fds.source.options.options import SourceOptions

TABLE = "s3://lake/orders"

ADD, ADD_NO_CHANGE = Action(add=Add(path="a", size=5)), Action(add=Add(path="b", size=5, dataChange=False))
REMOVE, REMOVE_NO_CHANGE = Action(remove=Remove(path="c")), Action(remove=Remove(path="d", dataChange=False))

#: What a commit holds -> (adds, removes) that change data.
COMMITS: dict[str, tuple[list[Action], tuple[int, int]]] = {
    "nothing": ([], (0, 0)),
    "add": ([ADD], (1, 0)),
    "add without change": ([ADD_NO_CHANGE], (0, 0)),
    "remove": ([REMOVE], (0, 1)),
    "remove without change": ([REMOVE_NO_CHANGE], (0, 0)),
    "add, remove": ([ADD, REMOVE], (1, 1)),
    "add, remove without change": ([ADD, REMOVE_NO_CHANGE], (1, 0)),
    "add without change, remove": ([ADD_NO_CHANGE, REMOVE], (0, 1)),
    "add and remove without change": ([ADD_NO_CHANGE, REMOVE_NO_CHANGE], (0, 0)),
}

OPTIONS: dict[str, dict[str, bool]] = {
    "default": {},
    "ignore_deletes": {"ignore_deletes": True},
    "ignore_changes": {"ignore_changes": True},
    "both": {"ignore_deletes": True, "ignore_changes": True},
    "skip": {"skip_change_commits": True},
    "skip, ignore_deletes": {"skip_change_commits": True, "ignore_deletes": True},
    "skip, ignore_changes": {"skip_change_commits": True, "ignore_changes": True},
    "skip, both": {"skip_change_commits": True, "ignore_deletes": True, "ignore_changes": True},
}


def expected(adds: int, removes: int, options: dict[str, bool]) -> type:
    """The table of Delta's streaming source, written out."""
    if not removes:
        return Emit
    if options.get("skip_change_commits"):
        return Skip
    if adds:
        return Emit if options.get("ignore_changes") else Stop
    return Skip if options.get("ignore_changes") or options.get("ignore_deletes") else Stop


def content(*actions: Action, version: int = 7) -> CommitContent:
    return CommitContent.of(version, actions, table=TABLE)


def message(actions: list[Action], **options: object) -> str:
    verdict = classify(content(*actions), SourceOptions.parse(options), table=TABLE)
    assert isinstance(verdict, Stop)
    return str(verdict.error)


# D12, D13
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("commit", COMMITS)
def test_the_whole_truth_table_in_every_order_of_actions(commit: str, options: str) -> None:
    actions, (adds, removes) = COMMITS[commit]
    bystanders = [Action(commitInfo=CommitInfo(operation="MERGE")), Action(txn=Txn(appId="x", version=1)), Action()]
    verdicts = []
    for ordered in permutations([*actions, *bystanders]):
        found = content(*ordered)
        assert (found.adds, found.removes) == (adds, removes)
        verdicts.append(classify(found, SourceOptions.parse(OPTIONS[options]), table=TABLE))
    assert {type(verdict) for verdict in verdicts} == {expected(adds, removes, OPTIONS[options])}
    assert len({str(v.error) if isinstance(v, Stop) else v for v in verdicts}) == 1


@pytest.mark.parametrize("actions", [[ADD], [REMOVE], [ADD, REMOVE]])
@pytest.mark.parametrize("options", [{"skip_versions": "7"}, {"skip_operations": "merge"}])
def test_listed_commits_are_skipped_whatever_they_contain(actions: list[Action], options: dict[str, str]) -> None:
    info = Action(commitInfo=CommitInfo(operation="MERGE"))
    verdict = classify(content(*actions, info), SourceOptions.parse(options), table=TABLE)
    assert isinstance(verdict, Skip)
    assert next(iter(options)) in verdict.reason
    other = content(*actions, Action(commitInfo=CommitInfo(operation="WRITE")), version=8)
    assert not isinstance(classify(other, SourceOptions.parse(options), table=TABLE), Skip)


def test_a_listed_commit_without_data_is_not_recorded_as_skipped() -> None:
    info = Action(commitInfo=CommitInfo(operation="OPTIMIZE"))
    options = SourceOptions.parse({"skip_operations": "OPTIMIZE", "skip_versions": 7})
    assert classify(content(ADD_NO_CHANGE, REMOVE_NO_CHANGE, info), options, table=TABLE) == Emit()


@pytest.mark.parametrize(
    ("options", "actions", "reason"),
    [
        (
            {"skip_change_commits": True},
            [ADD, REMOVE],
            "skip_change_commits; it adds 1 data file and removes 1 data file",
        ),
        ({"ignore_deletes": True}, [REMOVE], "ignore_deletes; it adds 0 data files and removes 1 data file"),
        ({"ignore_changes": True}, [REMOVE], "ignore_changes; it adds 0 data files and removes 1 data file"),
        (
            {"skip_versions": "1-9"},
            [ADD],
            "skip_versions lists version 7; it adds 1 data file and removes 0 data files",
        ),
    ],
)
def test_a_skipped_commit_is_recorded_with_the_option_and_its_operation(
    options: dict[str, object], actions: list[Action], reason: str
) -> None:
    assert classify(content(*actions), SourceOptions.parse(options), table=TABLE) == Skip(reason)


def test_41_a_delete_stops_the_stream_and_the_error_says_what_would_let_it_pass() -> None:
    info = Action(commitInfo=CommitInfo(operation="DELETE", operationParameters={"predicate": '["true"]'}))
    text = message([REMOVE, info])
    for word in [TABLE, "version 7", 'DELETE (predicate -> ["true"])', "adds 0 data files and removes 1 data file"]:
        assert word in text
    hints = [line.split("=")[0].strip(" -") for line in text.splitlines()[1:]]
    command = "`fds skip STREAM --version 7 --why …` skips this commit only and records it"
    options = ["read_change_feed", "skip_change_commits", "ignore_deletes", "skip_versions", "skip_operations"]
    assert hints == [*options, command]
    assert "skip_versions='7'" in text
    assert "skip_operations='DELETE'" in text
    assert redacted(text) == text, "the command line would show the list with a word hidden as a password"


@pytest.mark.parametrize("options", [{}, {"ignore_deletes": True}])
def test_42_a_change_stops_the_stream_and_never_suggests_ignore_deletes(options: dict[str, object]) -> None:
    info = Action(commitInfo=CommitInfo(operation="WRITE", operationParameters={"mode": "Overwrite", "n": 1}))
    text = message([ADD, REMOVE, REMOVE, info], **options)
    assert "WRITE (mode -> Overwrite, n -> 1)" in text
    assert "adds 1 data file and removes 2 data files" in text
    hints = [line.split("=")[0].strip(" -") for line in text.splitlines()[1:]]
    ways = ["read_change_feed", "skip_change_commits", "ignore_changes", "skip_versions", "skip_operations"]
    assert hints[:5] == ways
    assert "ignore_deletes" not in text
    assert "arrive again" in text


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("WRITE", {"mode": "Overwrite"}),
        ("CREATE OR REPLACE TABLE AS SELECT", {}),
        ("REPLACE TABLE", {}),
        ("RESTORE", {"version": "1"}),
    ],
)
@pytest.mark.parametrize("actions", [[REMOVE], [ADD, REMOVE]])
def test_an_overwrite_also_names_the_way_to_load_the_table_anew(
    operation: str, parameters: dict[str, object], actions: list[Action]
) -> None:
    text = message([*actions, Action(commitInfo=CommitInfo(operation=operation, operationParameters=parameters))])
    assert text.splitlines()[-1].startswith(
        "  - `fds rewind STREAM --to start --sink-rows keep|empty --why …` loads the table again"
    )
    assert "with keep the sink keeps all its rows" in text
    assert "with empty, if the sink allows it, the next run removes all rows of the sink first" in text
    assert redacted(text) == text


@pytest.mark.parametrize("parameters", [{"mode": "Append"}, {"predicate": '["true"]'}])
def test_other_commits_do_not_name_it(parameters: dict[str, object]) -> None:
    info = Action(commitInfo=CommitInfo(operation="UPDATE", operationParameters=parameters))
    assert "fds rewind" not in message([ADD, REMOVE, info])


@pytest.mark.parametrize("actions", [[REMOVE], [ADD, REMOVE]])
def test_each_way_that_the_error_names_lets_the_commit_pass(actions: list[Action]) -> None:
    info = Action(commitInfo=CommitInfo(operation="STREAMING UPDATE"))
    text = message([*actions, info])
    ways = dict(
        line.strip(" -").split(" reads")[0].split(" skips")[0].split(" delivers")[0].split("=")
        for line in text.splitlines()[1:-1]
    )
    assert len(ways) == 5
    for name, value in ways.items():
        options = SourceOptions.parse({name: value.strip("'")})
        assert not isinstance(classify(content(*actions, info), options, table=TABLE), Stop)


@pytest.mark.parametrize(("operation", "warns"), [("WRITE", True), ("MERGE", True), ("DELETE", False)])
def test_skipping_an_operation_that_may_also_append_warns_of_lost_rows(operation: str, warns: bool) -> None:
    text = message([ADD, REMOVE, Action(commitInfo=CommitInfo(operation=operation))])
    assert ("including those that only append: their rows would be missing" in text) is warns


def test_an_error_about_a_commit_without_commit_info_suggests_no_operation() -> None:
    text = message([REMOVE])
    assert "an operation that the commit does not name" in text
    assert "skip_operations" not in text


def test_the_error_holds_its_facts() -> None:
    info = Action(commitInfo=CommitInfo(operation="DELETE", operationParameters={"predicate": "x" * 1000}))
    verdict = classify(content(REMOVE, info), SourceOptions(), table=TABLE)
    assert isinstance(verdict, Stop)
    error = verdict.error
    assert isinstance(error, ViolationError)
    assert (error.table, error.version) == (TABLE, 7)
    assert error.reason_code == "SOURCE_ROWS_DELETED"
    assert error.operation is not None
    assert error.operation.startswith("DELETE (predicate -> xxx")
    assert len(str(error)) < 1200
    assert not error.retryable


@pytest.mark.parametrize(
    ("actions", "name"),
    [
        ([Action(metaData=Metadata(id="a")), Action(metaData=Metadata(id="b"))], "metaData"),
        ([Action(protocol=Protocol(1, 2)), Action(protocol=Protocol(3, 7))], "protocol"),
    ],
)
def test_two_different_actions_where_the_protocol_allows_one_stop_the_stream(actions: list[Action], name: str) -> None:
    for ordered in permutations(actions):
        with pytest.raises(StoppedError, match=f"version 7 has 2 different {name} actions") as caught:
            content(*ordered)
        assert TABLE in str(caught.value)
    assert content(actions[0], actions[0]).adds == 0
