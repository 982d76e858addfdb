"""What a move says before it is made, and which moves are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError, SchemaChangedError, ViolationError
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Removal
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.known_tables import readable
from tests.moves import requested

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench

PERSON = Actor(deployment="test", user="ann", host="desk")


@pytest.fixture
def loaded(bench: Bench, log_builder: Any, sink: DeltaAppendSink) -> Bench:
    """A stream that has loaded versions 0 to 3 in three batches with rows."""
    log_builder.create()
    for files in (1, 2, 3):
        log_builder.append(files)
    load(bench, sink, "run-1")
    return bench


def load(bench: Bench, sink: DeltaAppendSink, run: str) -> Any:
    session = bench.session(run, stream=bench.stream(max_versions_per_batch=1))
    while (work := session.begin(sink)).status == "work":
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    return work


def builder(bench: Bench, *, log: bool = True, **kw: Any) -> ActionBuilder:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    kw.setdefault("owner_runs", lambda owner: owner.run_id in bench.running)
    return ActionBuilder(ledger, "a test", log=DeltaLog(open_storage(str(bench.table))) if log else None, **kw)


def test_the_status_shows_a_request_that_waits_for_its_run(loaded):
    asked = builder(loaded)
    perform(asked.ledger, asked.rewind(to=2, sink_rows="keep"), PERSON)
    status = loaded.session("looker").status()
    assert (status.phase, status.extra["requested"]) == ("requested", "rewind: a test")


def test_a_rewind_shows_the_position_and_the_rows_that_would_be_in_the_sink_twice(loaded):
    said = builder(loaded).rewind(to=2, sink_rows="keep").describe()

    assert "before: epoch 1, the beginning of version 4" in said
    assert "after:  epoch 2, reads from version 2 on" in said
    assert "2 committed batches (50 rows) are read again" in said
    assert "The last version of the sink without them is 1." in said
    assert "`fds rewind orders --replace --to 2 --sink-rows delete --why …` (with provenance)" in said


def test_a_rewind_of_a_stream_that_merges_says_that_rows_are_merged_again(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    load(bench, DeltaMergeSink(str(tmp_path / "sink"), keys=["id"]), "run-1")
    said = builder(bench).rewind(to=1, sink_rows="keep").describe()

    assert "merged again by their keys" in said
    assert "a row whose key the source no longer has stays" in said
    assert "DELETE FROM" not in said


def test_a_rewind_to_the_current_position_reads_nothing_again(loaded):
    assert builder(loaded).rewind(to=4, sink_rows="keep").notes == ("No committed batch is read again.",)


def test_a_reset_reads_everything_again(loaded):
    said = builder(loaded).rewind(to="start", sink_rows="keep").describe()

    assert "3 committed batches (60 rows) are read again" in said
    assert "begins at its start options" in said


def test_a_rewind_out_of_an_unfinished_snapshot_does_not_leave_the_rest_of_it_out(bench, log_builder, sink):
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    stream = bench.stream(starting_version=None, max_files_per_batch=1)
    session = bench.session("run-1", stream=stream)
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)

    for version in (1, 2, 3):
        with pytest.raises(ConfigurationError, match=f"the rest of that snapshot, which version {version} does not"):
            builder(bench).rewind(to=version, sink_rows="keep")
    for target in (0, "start", "batch:0"):
        assert builder(bench).rewind(to=target, sink_rows="keep") is not None


def test_a_rewind_by_time_names_the_version_where_the_table_can_be_read(loaded, log_builder):
    time = "2024-01-01T00:02:00Z"

    assert "version " in builder(loaded).rewind(to=time, sink_rows="keep").after
    assert f"the first commit at or after {time}" in builder(loaded, log=False).rewind(to=time, sink_rows="keep").after


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"to": ""}, "to must be a version .*, a time .*, a batch .* or start: timestamp ''"),
        ({"to": "batch:x"}, "or start: timestamp 'batch:x'"),
        ({"to": "batch:-1"}, "or start: timestamp 'batch:-1'"),
        ({"to": "1.5"}, "or start: timestamp '1.5'"),
        ({"to": "starts"}, "or start: timestamp 'starts'"),
        ({"to": "9" * 5000}, "or start: timestamp '999"),
        ({"to": -1}, "-1 is not a version"),
        ({"to": 1, "load_skipped": True}, "--load-skipped is for --to start, not for --to 1"),
        ({"to": 5}, "version 5 is later; a rewind can only move backwards"),
        ({"to": "soon"}, "soon"),
        ({"to": "2999-01-01"}, "has no commit at or after 2999-01-01"),
        ({"to": "batch:9"}, "has no batch 9"),
        ({"to": 1, "landed": True}, "the stream has no such batch"),
    ],
)
def test_a_target_that_cannot_be_is_refused_before_anything_is_written(loaded, target, says):
    asked = builder(loaded)
    with pytest.raises(ConfigurationError, match=says):
        asked.rewind(**target)
    assert asked.ledger.state.epoch == 1


def test_a_rewind_after_the_oldest_commit_left_is_refused(loaded, log_builder):
    log_builder.clean_up_before(2)

    with pytest.raises(ConfigurationError, match=r"version 1 of .* was removed; the oldest commit in the log is 2"):
        builder(loaded).rewind(to=1, sink_rows="keep")


def test_the_batch_of_a_user_job_that_still_runs_is_not_taken_over(bench, log_builder):
    own_job_planned(bench, log_builder)
    bench.running.add("run-1")

    for name in ("replan", "rebind", "reset"):
        with pytest.raises(ConfigurationError, match="which appears to be running"):
            requested(builder(bench), name)


@pytest.mark.parametrize("move", ["replan", "rebind"])
@pytest.mark.parametrize(("landed", "first"), [(True, 2), (False, 1)])
def test_a_person_says_whether_the_batch_of_a_user_job_landed(bench, log_builder, move, landed, first):
    own_job_planned(bench, log_builder)
    with pytest.raises(ConfigurationError, match=r"handed to the user job, .*--landed yes or --landed no"):
        requested(builder(bench), move)

    asked = builder(bench)
    perform(asked.ledger, requested(asked, move, landed=landed), PERSON)

    work = bench.session("run-2", stream=bench.stream(max_versions_per_batch=1, starting_version=1)).begin(
        None, user_job=True, max_batches=1
    )
    assert (work.epoch, [b.first_version for b in work.batches]) == (2, [first])


def own_job_planned(bench: Bench, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)
    stream = bench.stream(max_versions_per_batch=1, starting_version=1)
    bench.session("run-1", stream=stream).begin(None, user_job=True, max_batches=1)


def test_a_skipped_version_is_never_forgotten(loaded):
    ledger = builder(loaded).ledger

    def skip(first: int, last: int) -> None:
        ledger.execute(Acknowledged(version=first, last=last, why="x", skip=True, of="rows"), PERSON)

    skip(10, 1009)
    with pytest.raises(LedgerError, match="remembers at most 1000 skipped versions, and would have 1001"):
        skip(1010, 1010)
    # one that is known takes no room
    skip(1009, 1009)
    for version in range(4, 10):
        ledger.execute(Acknowledged(version=version, why="x", of="schema"), PERSON)
    assert len(ledger.state.acknowledged) == 1006


def test_more_than_a_hundred_accepted_schemas_forget_the_oldest_and_no_skip(loaded):
    ledger = builder(loaded).ledger
    ledger.execute(Acknowledged(version=4, why="x", skip=True, of="rows"), PERSON)
    for version in range(4, 110):
        ledger.execute(Acknowledged(version=version, why="x", of="schema"), PERSON)
    words = ledger.state.acknowledged
    assert [word.version for word in words if word.skip] == [4]
    assert [word.version for word in words if not word.skip] == list(range(10, 110))


@pytest.mark.parametrize(
    ("decision", "version", "says"),
    [
        ("skip", (4, 4), "version 4 does not exist yet; the newest version of .* is 3"),
        ("skip", (0, 0), "version 0 changes only the schema and has no rows to skip.*`fds accept orders --version 0"),
        ("accept", 4, "version 4 does not exist yet"),
        ("accept", 5, "is at .*, not yet before version 5"),
        ("accept", 3, "is at .*, already past version 3"),
    ],
)
def test_a_person_decides_only_on_the_version_that_is_there(loaded, decision, version, says):
    with pytest.raises(ConfigurationError, match=says):
        getattr(builder(loaded), decision)(version)


@pytest.mark.parametrize(("first", "error"), [("accept", ViolationError), ("skip", SchemaChangedError)])
def test_accepting_a_schema_never_skips_rows_and_skipping_never_accepts_a_schema(
    loaded, log_builder, sink, first, error
):
    log_builder.commit(
        log_builder.metadata([log_builder.field("other")]), log_builder.add("x"), log_builder.remove("y")
    )
    decisions = {"accept": 4, "skip": (4, 4)}
    with pytest.raises(SchemaChangedError, match="`fds skip STREAM --version 4"):
        loaded.session("before").begin(sink)
    asked = builder(loaded)
    perform(asked.ledger, getattr(asked, first)(decisions.pop(first)), PERSON)
    with pytest.raises(error):
        loaded.session("between").begin(sink)
    ((second, version),) = decisions.items()
    asked = builder(loaded)
    perform(asked.ledger, getattr(asked, second)(version), PERSON)
    assert loaded.session("after").begin(sink).status == "up_to_date"


def test_a_version_that_changes_rows_is_not_accepted(loaded, log_builder, sink):
    log_builder.commit(log_builder.add("x"), log_builder.remove("y"), operation="WRITE")
    with pytest.raises(ViolationError):
        loaded.session("run-2").begin(sink)
    with pytest.raises(ConfigurationError, match=r"version 4 does not change the schema.*`fds skip orders --version 4"):
        builder(loaded).accept(4)


def test_an_append_needs_no_word_and_is_not_offered_to_be_skipped(loaded, log_builder):
    log_builder.append(1)
    with pytest.raises(
        ConfigurationError, match="version 4 only adds rows, which needs no word: run the stream"
    ) as said:
        builder(loaded).accept(4)
    assert "skip" not in str(said.value)


def test_a_decision_on_a_version_shows_first_which_rows_it_is_about(loaded, log_builder):
    log_builder.append(2)
    log_builder.commit(
        log_builder.metadata([log_builder.field("other")]),
        log_builder.add("x"),
        log_builder.add("y", stats=None),
        log_builder.remove("z"),
    )
    asked = builder(loaded)
    assert "Version 4 adds 20 rows in 2 files." in asked.skip((4, 4)).describe()
    assert "Version 5 adds an unknown number of rows in 2 files, and removes 1 file." in asked.skip((5, 5)).describe()
    assert "Versions 4 to 5 add an unknown number" in asked.skip((4, 5)).describe()


@pytest.mark.parametrize("name", ["skip", "accept"])
def test_a_decision_on_a_version_reads_its_commit_once(loaded, log_builder, monkeypatch, name):
    log_builder.commit(log_builder.metadata([log_builder.field("other")]), log_builder.add("x"))
    read, commit = [], DeltaLog.commit
    monkeypatch.setattr(DeltaLog, "commit", lambda log, version: read.append(version) or commit(log, version))
    asked = builder(loaded).skip((4, 4)) if name == "skip" else builder(loaded).accept(4)
    assert "Version 4 adds 10 rows in 1 file." in asked.describe()
    assert read == [4]


def test_a_skipped_version_is_recorded_with_who_and_why(loaded, log_builder, sink):
    log_builder.append(1)
    log_builder.append(1)
    asked = builder(loaded)
    perform(asked.ledger, asked.skip((4, 4)), PERSON)

    session = loaded.session("run-2", stream=loaded.stream(max_versions_per_batch=1))
    work = session.begin(sink)

    assert [b.num_files for b in work.batches] == [1]
    skipped = work.batches[0].skipped[0]
    assert skipped.version == 4
    assert skipped.reason == "skipped by ann@desk: a test; it adds 1 data file and removes 0 data files"


@pytest.mark.parametrize("version", [1, 3])
def test_a_version_that_was_read_cannot_be_skipped(loaded, version):
    asked = builder(loaded)
    with pytest.raises(LedgerError, match=f"has already read version {version}, or a part of it.*--to {version} "):
        perform(asked.ledger, asked.skip((version, version)), PERSON)


def test_a_version_in_a_planned_batch_is_skipped_after_a_replan_only(loaded, log_builder, sink):
    log_builder.append(1)
    loaded.session("run-2").begin(sink)
    asked = builder(loaded)

    with pytest.raises(LedgerError, match="`fds replan orders --why …`, then skip"):
        perform(asked.ledger, asked.skip((4, 4)), PERSON)


def test_a_retired_stream_does_nothing(loaded, sink):
    asked = builder(loaded)
    perform(asked.ledger, asked.retire(), PERSON)

    with pytest.raises(LedgerError, match="the stream was retired for good"):
        load(loaded, sink, "run-2")


def test_a_table_that_cannot_be_read_checks_nothing(tmp_path):
    assert readable(open_storage(str(tmp_path / "nothing"))) is None


# -- rows that are removed from the sink


def committed(bench: Bench, log_builder: Any, sink: Any) -> None:
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)
    load(bench, sink, "run-1")


@pytest.mark.parametrize("name", ["rewind", "reset"])
def test_a_sink_that_merges_requires_a_choice_of_empty_or_keep(bench, log_builder, tmp_path, name):
    committed(bench, log_builder, DeltaMergeSink(str(tmp_path / "sink"), keys=["id"]))
    with pytest.raises(
        ConfigurationError, match=r"a rewind: its delete is not read.*--sink-rows empty.*or --sink-rows keep"
    ):
        requested(builder(bench), name)
    kept = requested(builder(bench), name, sink_rows="keep")
    emptied = requested(builder(bench), name, sink_rows="empty", force_sink=True)

    assert kept.commands[0].removal is None
    assert emptied.commands[0].removal == Removal(what="all", is_forced=True)
    assert "with scd=2 it closes the current rows" in emptied.describe()
    assert "Rows of other writers are removed, too" in emptied.describe()


def test_a_rewind_empties_only_a_sink_that_it_fills_again_as_a_whole(loaded):
    with pytest.raises(
        ConfigurationError, match=r"--sink-rows empty is not available: the sink has rows that are not read"
    ):
        builder(loaded).rewind(to=2, sink_rows="empty")
    said = builder(loaded).rewind(to=0, sink_rows="empty")

    assert said.commands[0].removal == Removal(what="all")
    assert "The next run empties the sink" in said.describe()
    assert "DELETE FROM" not in said.describe()


def test_a_rewind_with_delete_names_the_version_that_a_time_means(loaded, log_builder):
    asked = builder(loaded).rewind(to="2024-01-01T00:02:00Z", sink_rows="delete").commands[0]

    assert asked.to == {"starting_version": asked.removal.from_version}
    with pytest.raises(ConfigurationError, match="the version at that time is unknown"):
        builder(loaded, log=False).rewind(to="2024-01-01T00:02:00Z", sink_rows="delete")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"force_sink": True}, "--force-sink is for --sink-rows delete and --sink-rows empty"),
        ({"sink_rows": "keep", "force_sink": True}, "--force-sink is for"),
        (
            {"to": "start", "sink_rows": "delete"},
            "--to start is no version. Use --sink-rows empty, .* or --sink-rows keep",
        ),
    ],
)
def test_contradictory_options_for_the_sink_are_refused(loaded, asked, says):
    with pytest.raises(ConfigurationError, match=says):
        builder(loaded).rewind(**{"to": 2, **asked})


def test_rows_that_came_with_a_snapshot_are_not_deleted_by_their_version(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(2)
    session = bench.session("run-1", stream=bench.stream(starting_version=None))
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)

    with pytest.raises(
        ConfigurationError, match=r"--sink-rows delete is not available: .* were loaded with an initial"
    ):
        builder(bench).rewind(to=1, sink_rows="delete")


def test_a_merge_cannot_show_the_rows_that_it_replaced(bench, log_builder, tmp_path):
    committed(bench, log_builder, DeltaMergeSink(str(tmp_path / "sink"), keys=["id"]))

    with pytest.raises(ConfigurationError, match="A merge does not keep the rows that it replaced"):
        builder(bench).rewind(to=1, sink_rows="delete")


def test_nothing_is_removed_where_fds_does_not_know_the_table(bench, log_builder):
    own_job_planned(bench, log_builder)

    with pytest.raises(
        ConfigurationError, match="whose tables FDS does not know, so --sink-rows empty is not available"
    ):
        builder(bench).rewind(to="start", sink_rows="empty")


def test_a_rebind_announces_its_empty_commits(loaded):
    assert "writes an empty commit into each of the two tables" in builder(loaded).replan(new_sink=True).describe()


def test_rows_are_not_removed_while_a_rebind_waits(loaded):
    asked = builder(loaded)
    perform(asked.ledger, asked.replan(new_sink=True), PERSON)

    with pytest.raises(ConfigurationError, match="is not bound to a sink, so --sink-rows delete is not available"):
        builder(loaded, replaces=True).rewind(to=2, sink_rows="delete")
    told = builder(loaded, replaces=True).rewind(to="start", sink_rows="keep").describe()
    assert "for the sink of the next run. If that sink already has their rows, they are duplicated." in told
    assert "stay in the sink" not in told


def test_another_rebind_still_names_the_sink_that_has_the_rows(loaded):
    asked = builder(loaded)
    named = asked.ledger.state.sink.describe()
    perform(asked.ledger, asked.replan(new_sink=True), PERSON)

    assert f"Its sink was {named}." in builder(loaded, replaces=True).replan(new_sink=True).describe()


@pytest.mark.parametrize(
    "move",
    [{"to": 2}, {"to": "batch:0"}, {"to": "2024-01-01T00:00:00Z"}, {"to": "start"}],
    ids=["version", "batch", "time", "start"],
)
def test_whoever_lets_committed_rows_be_read_again_says_what_becomes_of_them(loaded, move):
    with pytest.raises(
        ConfigurationError, match=r"the rewind reads rows again that are in the sink\. Say what becomes"
    ) as refused:
        builder(loaded).rewind(**move)
    # what is offered is what is possible
    assert ("--sink-rows delete" in str(refused.value)) is (move != {"to": "start"})
    assert builder(loaded).rewind(**move, sink_rows="keep").commands[0].removal is None


def test_no_word_is_needed_where_nothing_is_read_again(loaded):
    assert builder(loaded).rewind(to=4).commands[0].removal is None
