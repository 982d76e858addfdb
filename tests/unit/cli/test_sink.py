"""``--sink`` and ``--sink-option``: the sinks that they describe, and what they refuse before Spark starts."""

from __future__ import annotations

import pytest

from airflow_provider_fds.catalog.sinks import SinkPlaces
from airflow_provider_fds.cli.arguments import sink_places
from airflow_provider_fds.cli.main import main, parser
from airflow_provider_fds.cli.sink import sink_of
from airflow_provider_fds.errors import EXIT_CONFIGURATION, ConfigurationError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink

UUID = "0f7b6f5e-0000-4000-8000-000000000000"


def words(*options: str, sink: str | None = "/sink") -> list[str]:
    place = [] if sink is None else ["--sink", sink]
    return [
        "run",
        "/t",
        "--stream",
        "s",
        "--staging",
        "/st",
        *place,
        *(w for o in options for w in ("--sink-option", o)),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), DeltaAppendSink("/sink")),
        (
            ("provenance=yes", "merge_schema=true", "partition_by=day,region", "on_sink_overwritten=fail"),
            DeltaAppendSink("/sink", ("day", "region"), True, True, on_sink_overwritten="fail"),
        ),
        (
            (f"other_streams={UUID}", "where=a = 'x,y'"),
            DeltaAppendSink("/sink", other_streams=(UUID,), where="a = 'x,y'"),
        ),
        (("kind=delta_merge", "keys=id,region", "scd=2"), DeltaMergeSink("/sink", keys=("id", "region"), scd=2)),
        (
            ('constant_columns={"system": "crm", "year": 2026}', "target_file_size=128m"),
            DeltaAppendSink("/sink", constant_columns={"system": "crm", "year": 2026}, target_file_size="128m"),
        ),
    ],
)
def test_options_describe_a_sink(options, expected):
    assert sink_of(parser().parse_args(words(*options))) == expected


def test_a_function_needs_no_sink():
    given = parser().parse_args(words("kind=foreach_batch", "function=jobs:load", "writes=one,two", sink=None))
    assert sink_of(given) == ForeachBatchSink("jobs:load", writes=("one", "two"))


@pytest.mark.parametrize(
    ("options", "sink", "says"),
    [
        (("kind=delta_replace",), "/sink", "It replaces data intervals, which only a DeltaIngestOperator loads"),
        (("kind=delta_merge",), "/sink", "keys is required"),
        (("kind=delta_merge", "keys=id"), None, "missing --sink, the table of a sink of kind delta_merge"),
        (("provenace=yes",), "/sink", "has no key 'provenace'. Did you mean 'provenance'?"),
        (("provenance=maybe",), "/sink", "provenance must be true or false, got 'maybe'"),
        (("kind=delta_merge", "keys=id", "keys=region"), "/sink", "has a key twice. Write a list as KEY=FIRST,SECOND"),
        (("uri=/other",), "/sink", "has no key 'uri'. Use --sink"),
        (("storage_conn_id=lake",), "/sink", "names a connection of Airflow"),
        (("catalog_conn_id=hive",), "a.b", "has no key 'catalog_conn_id'. Use --sink-catalog"),
        ((), "sales.orders", "looks like a name in a catalog"),
        (("create=yes",), "/sink", "create and location are for a table that is given by its name"),
        (("kind=foreach_batch", "function=a:b"), "/sink", "cannot be combined. Omit --sink"),
        (("keys",), "/sink", "--sink-option must be KEY=VALUE, got 'keys'"),
    ],
)
def test_what_is_no_sink_of_the_command_line_is_refused(capsys, options, sink, says):
    assert main(words(*options, sink=sink)) == EXIT_CONFIGURATION
    assert says in capsys.readouterr().err


HIVE = ("--sink-catalog", "thrift://metastore:9083")


def test_a_sink_has_a_name_in_a_catalog():
    given = parser().parse_args([*words("create=yes", "location=/lake/new", sink="sales.orders"), *HIVE])
    expected = DeltaAppendSink("sales.orders", catalog_conn_id=HIVE[1], create=True, location="/lake/new")
    assert sink_of(given) == expected
    assert isinstance(sink_places(given, expected), SinkPlaces)
    assert sink_places(given, DeltaAppendSink("/sink")) is None


@pytest.mark.parametrize(
    ("sink", "catalog", "says"),
    [
        ("orders", HIVE[1], "has 1 part"),
        ("/lake/orders", HIVE[1], "is a path, and a catalog has names"),
        (None, HIVE[1], "--sink-catalog needs --sink"),
        ("sales.orders", "hive", "the sink sales.orders is the Airflow connection 'hive', which the command line"),
        ("sales.orders", "jdbc://host", "is not the URI of a catalog"),
        ("sales.orders", "https://me:secret@host", "contains user info"),
    ],
)
def test_a_catalog_of_a_sink_that_is_none_is_refused(capsys, sink, catalog, says):
    option = () if sink is not None else ("kind=delta_append",)
    assert main([*words(*option, sink=sink), "--sink-catalog", catalog]) == EXIT_CONFIGURATION
    told = capsys.readouterr().err
    assert says in told
    assert "secret" not in told


def test_a_catalog_on_the_command_line_stands_for_the_connection_of_a_file():
    given = parser().parse_args(["run", "--file", "streams.yaml", "--staging", "/st", *HIVE])
    assert isinstance(sink_places(given, DeltaAppendSink("sales.orders", catalog_conn_id="hive")), SinkPlaces)


@pytest.mark.parametrize(
    ("known", "options", "expected"),
    [
        ("delta_append", ("provenance=yes",), DeltaAppendSink("/live", provenance=True)),
        ("delta_merge", ("keys=id",), DeltaMergeSink("/live", keys=("id",))),
        ("foreach_batch", ("writes=one",), ForeachBatchSink("jobs:load", writes=("one",))),
        ("delta_append", ("kind=delta_merge", "keys=id"), DeltaMergeSink("/live", keys=("id",))),
    ],
)
def test_what_the_ledger_knows_of_a_sink_is_completed_by_options(known, options, expected):
    target = "jobs:load" if known == "foreach_batch" else "/live"
    given = parser().parse_args(words(*options, sink=None))
    assert sink_of(given, {"kind": known, "uri": target, "function": target}) == expected


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ("delta_replace", "It replaces data intervals"),
        ("delta_merge", "keys is required"),
        ("user_job", "got 'user_job'"),
    ],
)
def test_a_known_sink_that_is_not_enough_is_refused(known, says):
    with pytest.raises(ConfigurationError) as caught:
        sink_of(parser().parse_args(words(sink=None)), {"kind": known, "uri": "/live", "function": "/live"})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("--provenance", "--sink-option provenance=yes"),
        ("--merge-schema", "--sink-option merge_schema=yes"),
        ("--partition-by", "--sink-option partition_by=COLUMN,COLUMN"),
        ("--on-sink-overwritten", "--sink-option on_sink_overwritten=fail"),
        ("--other-stream", "--sink-option other_streams=UUID,UUID"),
        ("--spark-remote", "--remote sc://HOST:PORT"),
    ],
)
def test_an_older_flag_is_an_error_that_names_the_new_one(capsys, older, newer):
    assert main([*words(), older]) == EXIT_CONFIGURATION
    assert f"unrecognized arguments: {older}. It is now `{newer}`" in capsys.readouterr().err
