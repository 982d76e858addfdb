"""A file of streams: what it means, and what is wrong with it, by line and column."""

from __future__ import annotations

import json
from datetime import timedelta

import jsonschema
import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.streams_file import fields
from airflow_provider_fds.fleet.streams_file.file import parse_fleet_file, read_fleet_file
from airflow_provider_fds.fleet.streams_file.schema import streams_schema
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink
from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts

MOST = """\
defaults:
  storage_conn_id: lake
  sink:
    uri: s3://${BRONZE:-bronze}/{schema}/{table}
    provenance: true
  max_files_per_batch: 500
groups:
  crm:
    conn_id: spark_connect_default
    schedule: 15m
    parallelism: ${PARALLELISM}
    pool: spark
    on_stream_failure: continue
    max_bytes_in_flight: 8g
    run_time_limit: 1h
    linger: 10m
    alerts: {lag: 30m, notifiers: ["pkg.mod:notify"]}
    spark: {driver_memory: 4g, conf: {spark.sql.shuffle.partitions: 8}}
    defaults:
      max_files_per_batch: 50
      sink: {provenance: null, constant_columns: {source_system: crm}}
streams:
  - table: s3://lake/raw/orders
    group: crm
    sink: {kind: delta_merge, keys: [id]}
    batch_timeout: 10m
  - table: s3://lake/raw/lines
    name: "{schema}_{table}"
    starting_timestamp: 2026-01-31
  - tables: s3://lake/crm/*
    exclude: [tmp_*]
    new_tables: alert
  - table: s3://lake/raw/events
    sink: {kind: foreach_batch, function: "jobs:load"}
"""

FUNCTION_TWICE = """\
- {table: /a, sink: {kind: foreach_batch, function: "f:g"}}
- {table: /b, sink: {kind: foreach_batch, function: "f:g"}}
"""


def read(text, environment=None):
    found, document = parse_fleet_file(text, "streams.yaml", environment or {})
    assert document.messages() == []
    return {group.name: group for group in found.groups}


def problems(text, environment=None):
    return parse_fleet_file(text, "streams.yaml", environment or {})[1].messages()


def one_problem(text, environment=None):
    found = problems(text, environment)
    assert len(found) == 1, found
    return found[0]


def test_a_file_with_groups_defaults_and_patterns():
    groups = read(MOST, {"PARALLELISM": "4"})
    assert list(groups) == ["crm", "default"]
    crm, rest = groups.values()
    assert (crm.conn_id, crm.schedule, crm.parallelism, crm.pool, crm.on_stream_failure) == (
        "spark_connect_default",
        timedelta(minutes=15),
        4,
        "spark",
        "continue",
    )
    assert (crm.max_bytes_in_flight, crm.run_time_limit, crm.dag_id) == (8 << 30, timedelta(hours=1), "fds_crm")
    assert (crm.linger, rest.linger) == (timedelta(minutes=10), None)
    assert crm.alerts == StreamAlerts(lag=timedelta(minutes=30))
    assert crm.notifiers == ("pkg.mod:notify",)
    assert crm.spark == {"driver_memory": "4g", "conf": {"spark.sql.shuffle.partitions": 8}}
    (orders,) = crm.streams
    assert (orders.name, orders.batch_timeout, orders.stream.storage_conn_id) == (
        "orders",
        timedelta(minutes=10),
        "lake",
    )
    assert orders.stream.options.max_files_per_batch == 50
    assert orders.sink == DeltaMergeSink(
        "s3://bronze/raw/orders", keys=["id"], constant_columns={"source_system": "crm"}
    )
    lines, events = rest.streams
    assert (lines.name, lines.sink) == ("raw_lines", DeltaAppendSink("s3://bronze/raw/lines", provenance=True))
    assert lines.stream.options.starting_timestamp == "2026-01-31"
    assert events.sink == ForeachBatchSink("jobs:load")
    (pattern,) = rest.patterns
    assert (pattern.exclude, pattern.new_tables) == (("tmp_*",), "alert")
    assert pattern.stream_of("s3://lake/crm/a").sink == DeltaAppendSink("s3://bronze/crm/a", provenance=True)


def test_expectations_may_be_defaults_and_rejected_rows_have_a_place_for_each_table():
    text = """
defaults:
  sink: "s3://bronze/{schema}/{table}"
  expect: {"id IS NOT NULL": fail, "amount >= 0": reject}
  max_rejected: 0.01
  rejects: "s3://rejects/{schema}/{name}"
streams:
  - table: s3://lake/raw/orders
    name: "{table}_1"
  - tables: s3://lake/crm/*
  - table: s3://lake/raw/lines
    expect: {"id > 0": drop}
    rejects: null
"""
    (group,) = read(text).values()
    one, lines = (entry.stream for entry in group.streams)
    (pattern,) = group.patterns
    found = pattern.stream_of("s3://lake/crm/a")
    for stream, rejects in ((one, "s3://rejects/raw/orders_1"), (found.stream, "s3://rejects/crm/a")):
        assert stream.expectations.expect == {"id IS NOT NULL": "fail", "amount >= 0": "reject"}
        assert (stream.expectations.max_rejected, stream.expectations.rejects) == (0.01, rejects)
    assert lines.expectations.to_dict() == {"expect": {"id > 0": "drop"}, "max_rejected": 0.01}
    assert TablePattern.from_dict(pattern.to_dict()).stream_of("s3://lake/crm/a") == found
    wrong = problems(text.replace("amount >= 0", "rand() > amount"))
    assert any("contains rand, whose result depends on" in problem for problem in wrong)


def test_a_sink_may_be_a_uri():
    (stream,) = read("streams:\n- {table: /lake/orders, sink: /bronze/orders}\n")["default"].streams
    assert (stream.stream.table, stream.sink) == ("/lake/orders", DeltaAppendSink("/bronze/orders"))


def test_words_are_those_of_yaml_1_2():
    text = "streams:\n- {table: /lake/on, name: yes, sink: '/b', skip_operations: [no], ignore_deletes: true}\n"
    (stream,) = read(text)["default"].streams
    assert (stream.name, stream.stream.options.skip_operations) == ("yes", ("NO",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1:1: the file has no key 'streams'. Write streams: with at least one stream."),
        ("- a\n", "1:1: the file has no key 'streams'"),
        ("streams: []\n", "1:1: streams must be a list with at least one stream"),
        ("streams: [\n", "2:1: this is not valid YAML: "),
        ("streams:\n- {table: /a, sink: /b}\n- table\n", "3:3: a stream must be a mapping"),
        ("streams:\n- {table: /a, sink: /b, sink: /c}\n", "2:25: the key 'sink' is here a second time, first in"),
        ("streams:\n- {sink: /b}\n", "2:3: the stream has neither 'table' nor 'tables'"),
        ("streams:\n- {table: /a, tables: /c/*, sink: /b}\n", "2:3: the stream has both 'table' and 'tables'"),
        ("streams:\n- {table: /a}\n", "2:3: the stream has no sink."),
        ("streams:\n- {table: /a, sink: 3}\n", "2:15: sink must be a URI or a mapping, got 3."),
        ("streams:\n- {table: /a, sink: {partition_by: [day]}}\n", "2:15: a sink of kind delta_append needs 'uri'."),
        ("streams:\n- {table: /a, sink: /b, incude: [a]}\n", "2:25: a stream has no key 'incude'. Did you mean"),
        ("streams:\n- {table: /a, sink: /b, include: [a]}\n", "2:25: include has no effect on an entry without"),
        ("streams:\n- {table: /a, sink: /b, keys: [a]}\n", "2:25: 'keys' is an argument of the sink."),
        ("streams:\n- {table: /a, sink: /b, startingVersion: 1}\n", "Did you mean 'starting_version'?"),
        ("streams:\n- {table: /a, sink: {uri: /b, key: [a], kind: delta_merge, keys: [a]}}\n", "Did you mean 'keys'?"),
        ("streams:\n- {table: /a, sink: {uri: /b, kind: delta_replace}}\n", "which only a DeltaIngestOperator loads"),
        ("streams:\n- {table: /a, sink: /b, starting_version: soon}\n", "2:25: option 'starting_version' must be"),
        ("streams:\n- {table: /a, sink: /b, name: a b}\n", "2:25: name 'a b' must have 1 to 100 letters"),
        ("streams:\n- {table: /a, sink: /b, batch_timeout: soon}\n", "2:25: batch_timeout must be a positive duration"),
        ("streams:\n- {table: /a, sink: '/b/{tabel}'}\n", "2:15: '/b/{tabel}' has the unknown part {tabel}"),
        ("streams:\n- {table: /a, sink: /b, shares_sink: 1}\n", "2:25: shares_sink must be true or false"),
        ("streams:\n- {table: /a, sink: /b, group: c}\ngroups: {d: {}}\n", "2:25: there is no group 'c'"),
        ("streams:\n- {table: /a, sink: /b}\ndefaults: {table: /c}\n", "3:12: table belongs to a single stream."),
        ("streams:\n- {table: /a, sink: /b}\ndefaults: {tiemout: 3}\n", "3:12: defaults has no key 'tiemout'"),
        ("streams:\n- {table: /a, sink: /b}\ngrups: {}\n", "3:1: the file has no key 'grups'. Did you mean 'groups'?"),
        ("streams:\n- {table: /a, sink: /b}\ngroups: [a]\n", "3:1: groups must be a mapping"),
        ("streams:\n- {tables: /a, sink: '/b/{table}'}\n", "2:4: tables '/a' has no '*'."),
        ("streams:\n- {tables: /a/*, sink: '/b/{table}', fork_of: x}\n", "fork_of has no effect"),
        ("a: &a {x: 1}\nstreams:\n- {table: /a, sink: /b, <<: *a}\n", "merge keys (<<) are not read"),
        ("streams:\n- {table: !env A, sink: /b}\n", "2:11: the tag '!env' is not read."),
        ("streams: &s\n- *s\n", "has too many values, or aliases"),
        ("streams:\n- {table: s3://key:secret@lake/a, sink: /b}\n", "looks like a credential"),
    ],
)  # fmt: skip
def test_a_problem_names_its_place_and_what_to_do(text, problem):
    assert any(problem in found and found.startswith("streams.yaml:") for found in problems(text)), problems(text)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ("shedule: 15m", "1:14: a group has no key 'shedule'. Did you mean 'schedule'?"),
        ("schedule: sometimes", "1:14: schedule must be a cron expression"),
        ("parallelism: 0", "1:14: parallelism must be an integer of at least 1, got 0."),
        ("max_bytes_in_flight: much", "1:14: max_bytes_in_flight must be a size"),
        ("run_time_limit: 0", "1:14: run_time_limit must be a time such as"),
        ("on_stream_failure: stop", "1:14: on_stream_failure must be fail_at_end, continue or fail_fast"),
        ("dag_per: table", "1:14: dag_per must be group or stream, got 'table'."),
        ("dag_id: 'a b'", "1:14: dag_id 'a b' must have letters"),
        ("pool: 3", "1:14: pool must be a text, got 3"),
        ("wait: often", "1:14: wait must be true or false"),
        ("poll_interval: 10s", "1:14: poll_interval has no effect without wait: true. Omit it."),
        ("tags: a", "1:14: tags must be a list of texts"),
        ("alerts: 3", "1:14: alerts must be a mapping"),
        ("alerts: {lags: 3}", "1:23: alerts has no key 'lags'. Did you mean 'lag'?"),
        ("alerts: {notifiers: [smtp]}", "1:35: a notifier must be named as 'pkg.module:name', got 'smtp'."),
        ("spark: {confs: {}}", "1:22: spark has no key 'confs'. Did you mean 'conf'?"),
        ("spark: {driver_memory: 4}", "1:22: driver_memory must be a text, got 4;"),
        ("spark: {conf: {fs.s3a.secret.key: abc}}", "looks like a credential"),
        ("dag_per: stream, parallelism: 4", "parallelism has no effect with dag_per: stream. Omit it."),
        ("dag_per: stream, defaults: {batch_timeout: 1h}", "batch_timeout has no effect with dag_per: stream"),
        ("defaults: {group: b}", "the defaults of a group cannot name a group"),
    ],
)
def test_a_problem_of_a_group_names_its_place(group, problem):
    text = f"groups: {{a: {{{group}}}}}\nstreams:\n- {{table: /a, sink: /b, group: a}}\n"
    assert problem in one_problem(text)


def test_a_pattern_has_no_dag_per_stream():
    text = "groups: {a: {dag_per: stream}}\nstreams:\n- {tables: '/a/*', sink: '/b/{table}', group: a}\n"
    assert "has one DAG for each stream, but the tables '/a/*' are found when a run begins" in one_problem(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("streams:\n- {table: /a, sink: {uri: /b, kind: {}}}\n", "2:31: the kind of a sink must be"),
        ("streams:\n- {table: /a, sink: {uri: /b, kind: [a]}}\n", "2:31: the kind of a sink must be"),
        ("streams:\n- {table: /a, sink: /b, group: [a]}\n", "2:25: there is no group ['a']"),
        ("streams:\n- {table: /a/*, sink: /b}\n", "2:4: table is one table, got '/a/*'. Write tables: for a pattern"),
        ("streams:\n- {tables: /a/*, sink: '/b/{table}', include: 3}\n", "2:38: include must be a list"),
        ("streams:\n- {table: /a, sink: /b}\ngroups: {a: {defaults: 3}}\n", "3:14: defaults must be a mapping"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_problem_and_no_crash(text, problem):
    assert problem in one_problem(text)


def test_all_problems_are_reported_at_once_and_in_order():
    found = problems("streams:\n- {table: /a, sink: /b, x: 1, y: 2}\n- {table: 3, sink: /c}\ngroups: 4\n")
    assert [one.split(": ")[0] for one in found] == [
        "streams.yaml:2:25",
        "streams.yaml:2:31",
        "streams.yaml:3:4",
        "streams.yaml:4:1",
    ]


def test_a_problem_of_the_defaults_is_reported_once_at_its_place():
    text = "defaults:\n  max_files_per_batch: some\nstreams:\n- {table: /a, sink: /c}\n- {table: /b, sink: /d}\n"
    assert one_problem(text).startswith("streams.yaml:2:3: option 'max_files_per_batch' must be an integer")


@pytest.mark.parametrize(
    ("streams", "problem"),
    [
        ("- {table: /a, sink: /x}\n- {table: /a, sink: /y}\n", "3:3: the stream 'a' is here a second time"),
        ("- {table: /a, sink: /x}\n- {table: /b, sink: /x/}\n", "3:15: the sink /x is also that of the stream"),
        (
            "- {table: /a, sink: s3://b/x}\n- {table: /b, sink: {uri: s3a://b/x, kind: delta_merge, keys: [a]}}\n",
            "3:15: the sink s3a://b/x is also that of the stream in line 2",
        ),
        (
            "- {table: /a, sink: /x, checkpoint: 'file:o'}\n- {table: /b, sink: /y, checkpoint: 'file:./o'}\n",
            "3:25: the checkpoint 'file:./o' is also that of the stream in line 2. Give each stream its own",
        ),
        (
            "- {table: /a, sink: /x}\n- {table: /b, sink: /y}\ndefaults: {checkpoint: 'file:o'}\n",
            "3:3: the checkpoint 'file:o' is also that of the stream in line 2",
        ),
        (
            "- {tables: '/a/*', sink: '/b/{table}'}\ndefaults: {checkpoint: 'file:o'}\n",
            "3:12: checkpoint 'file:o' is the same for all tables",
        ),
        (
            "- {tables: '/a/*', sink: '/b/{table}', group: g}\ngroups: {g: {defaults: {checkpoint: 'file:o'}}}\n",
            "3:25: checkpoint 'file:o' is the same for all tables",
        ),
        ("- {table: /a, sink: /x}\n- {table: /a/b, sink: /y}\n", "3:4: the table /a/b is inside the table /a of"),
        ("- {table: /a, sink: /x}\n- {table: /b, sink: /x/y}\n", "3:15: the sink /x/y is inside the sink /x of"),
        ("- {table: /a, sink: /x}\n- {table: /b, sink: /a}\n", "2:4: the table /a is the sink /a of"),
        ("- {tables: '/a/*', sink: /x}\n", "2:20: all tables of '/a/*' would load into the one sink /x."),
        ("- {tables: '/a/*', sink: '/a/{table}_b'}\n", "2:20: the sink /a/x_b is one of the tables '/a/*' in line 2"),
        ("- {tables: '/a/*', sink: '/b/{table}'}\n- {table: /c, sink: /a/c}\n", "3:15: the sink /a/c is one of"),
        (
            "- {tables: '/a/*', sink: '/b/{table}'}\n- {tables: '/a/*', sink: '/c/{table}'}\n",
            "3:4: the tables '/a/*' are here a second time, first in line 2",
        ),
    ],
)  # fmt: skip
def test_streams_that_cannot_be_together_are_reported(streams, problem):
    assert any(problem in found for found in problems(f"streams:\n{streams}")), problems(f"streams:\n{streams}")


@pytest.mark.parametrize(
    "streams",
    [
        "- {table: /a, sink: /x}\n- {table: /a, name: b, sink: /y}\n",
        "- {table: /a, sink: /x, shares_sink: true}\n- {table: /b, sink: /x, shares_sink: true}\n",
        "- {tables: '/a/*', sink: /x, shares_sink: true}\n",
        "- {tables: '/a/*', exclude: ['*_b'], sink: '/a/{table}_b'}\n",
        "- {tables: '/a/*', sink: '/b/{table}'}\n- {table: /a/c, sink: /d}\n",
        "- {table: /a, sink: /x}\n- {table: /a-b, sink: /x-y}\n- {table: /ab, sink: /x.y}\n",
        FUNCTION_TWICE,
    ],
)
def test_streams_that_can_be_together_are_not(streams):
    read(f"streams:\n{streams}")


def test_one_default_gives_each_stream_its_own_checkpoint_file():
    text = "defaults: {checkpoint: 'file:/o/{name}', sink: '/b/{table}'}\nstreams:\n- table: /a\n- tables: /c/*\n"
    group = read(text)["default"]
    assert group.streams[0].stream.checkpoint == "file:/o/a"
    assert group.patterns[0].stream_of("/c/d").stream.checkpoint == "file:/o/d"


@pytest.mark.parametrize(
    ("value", "environment", "problem"),
    [
        ("${BUCKET}", {}, "the environment variable BUCKET is not set"),
        ("${BUCKET", {"BUCKET": "a"}, "has a variable that cannot be read"),
        ("${A B}", {}, "has a variable that cannot be read"),
        ("${AWS_SECRET_ACCESS_KEY}", {"AWS_SECRET_ACCESS_KEY": "x"}, "looks like a credential"),
        ("${DB_PASSWORD:-none}", {}, "looks like a credential"),
        ("${PLACE}", {"PLACE": "AKIAABCDEFGHIJKLMNOP"}, "looks like a credential"),
        ("${PLACE}", {"PLACE": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}, "looks like a credential"),
        ("${PLACE}", {"PLACE": "s3://me:word@lake"}, "looks like a credential"),
    ],
)
def test_a_variable_that_is_missing_or_secret_is_refused(value, environment, problem):
    found = one_problem(f"streams:\n- {{table: '{value}', sink: /b}}\n", environment)
    assert found.startswith("streams.yaml:2:11: ")
    assert problem in found
    assert not any(secret in found for secret in environment.values() if len(secret) > 1)


def test_variables_are_replaced_in_all_values_and_not_in_their_own():
    text = "streams:\n- {table: '/${A}/$${B}/$C', sink: '/${D:-d}', max_files_per_batch: '${N}', name: a}\n"
    (stream,) = read(text, {"A": "${B}", "N": "7"})["default"].streams
    assert stream.stream.table == "/${B}/${B}/$C"
    assert (stream.sink.uri, stream.stream.options.max_files_per_batch) == ("/d", 7)


def test_columns_may_be_compared_whatever_their_names():
    read("streams:\n- {table: /a, sink: /b, where: \"api_token = 'x' AND password IS NULL\"}\n")


def test_no_key_of_the_file_looks_like_a_secret():
    keys = {*fields.STREAM_KEYS, *fields.GROUP_KEYS, *fields.SPARK_KEYS, *fields.source_options()}
    assert [key for key in keys if is_secret(key)] == []


def test_the_schema_knows_all_keys_and_describes_them():
    schema = streams_schema()
    known = schema["$defs"]["stream"]["properties"]
    assert set(known) == {*fields.STREAM_KEYS, *fields.source_options()}
    assert set(schema["$defs"]["group"]["properties"]) == set(fields.GROUP_KEYS)
    sink = schema["$defs"]["sink"]["anyOf"][1]["properties"]
    assert set(sink) == {"kind"} | {key for kind in fields.SINKS for key in fields.sink_keys(kind)}
    for name, one in {**known, **sink}.items():
        assert len(one["description"]) > len(name) + 5, name


def test_the_schema_accepts_what_the_code_accepts():
    import yaml

    validator = jsonschema.Draft202012Validator(streams_schema())
    assert [error.message for error in validator.iter_errors(yaml.safe_load(MOST))] != []  # a date of YAML 1.1
    quoted = MOST.replace("2026-01-31", '"2026-01-31"')
    assert [error.message for error in validator.iter_errors(yaml.safe_load(quoted))] == []


@pytest.mark.parametrize(
    "text",
    [
        "streams: []",
        "streams: [{sink: /b}]",
        "streams: [{table: /a, sink: /b, incude: [a]}]",
        "streams: [{table: /a, sink: /b, on_violation: stop}]",
        "streams: [{table: /a, sink: {uri: /b, kez: [a]}}]",
        "{streams: [{table: /a, sink: /b}], groups: {a: {shedule: 15m}}}",
    ],
)
def test_the_schema_refuses_what_the_code_refuses(text):
    import yaml

    assert list(jsonschema.Draft202012Validator(streams_schema()).iter_errors(yaml.safe_load(text)))
    assert problems(text)


def test_fds_validate_says_what_is_in_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARALLELISM", "4")
    (tmp_path / "streams.yaml").write_text(MOST)
    assert main(["validate", "streams.yaml"]) == 0
    assert capsys.readouterr().out == "streams.yaml is valid: 2 groups, 3 streams, 1 pattern\n"
    assert main(["validate", "streams.yaml", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": "streams.yaml",
        "valid": True,
        "problems": [],
        "groups": 2,
        "streams": 3,
        "patterns": 1,
    }


def test_fds_validate_reports_each_problem_on_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text("streams:\n- {table: /a, sink: /b, x: 1}\n- {table: /c, sink: /d}\n")
    assert main(["validate", "streams.yaml"]) == 2
    out, err = capsys.readouterr()
    assert [line.split(": ")[0] for line in out.splitlines()] == ["streams.yaml:2:25"]
    assert err == "fds: 1 problem in streams.yaml\n"
    assert main(["validate", "streams.yaml", "--output", "json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["line"], problem["column"]) == (2, 25)
    with pytest.raises(ConfigurationError, match=r"streams\.yaml:2:25: a stream has no key 'x'"):
        read_fleet_file("streams.yaml")


def test_fds_validate_prints_the_schema(capsys):
    assert main(["validate", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == streams_schema()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "the file cannot be read: No such file"), (b"\xff\xfe\x00", "it is not UTF-8 text")],
)
def test_fds_validate_refuses_what_is_no_file_of_text(tmp_path, capsys, content, message):
    path = tmp_path / "streams.yaml"
    if content is not None:
        path.write_bytes(content)
    assert main(["validate", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert main(["validate"]) == 2
    assert "FILE is missing" in capsys.readouterr().err


def test_a_file_names_its_groups():
    found, _ = parse_fleet_file("streams:\n- {table: /a, sink: /b}\n", "streams.yaml", {})
    assert found.group("default").streams[0].name == "a"
    with pytest.raises(ConfigurationError, match="there is no group 'crm' in the file; its groups are 'default'"):
        found.group("crm")


@pytest.mark.parametrize("table", ["/lake/crm/orders", "file:///lake/crm/orders/", "file:/lake/crm/orders"])
def test_a_declared_table_is_loaded_by_no_pattern_of_any_group(table):
    text = (
        "groups: {a: {}, b: {}}\n"
        "streams:\n"
        "- {tables: '/lake/*/*', sink: '/bronze/{schema}/{table}', exclude: [tmp_*], group: a}\n"
        f"- {{table: '{table}', sink: /mine, group: b}}\n"
        "- {table: /elsewhere/crm/orders, name: other, sink: /other, group: b}\n"
    )
    (pattern,) = read(text)["a"].patterns
    assert pattern.exclude == ("tmp_*", "crm/orders")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "streams:\n- {tables: /lake/crm/*, sink: 'file:///lake/crm/x_{table}'}\n",
            "the sink file:///lake/crm/x_x is one of the tables '/lake/crm/*'",
        ),
        (
            "streams:\n- {table: /a, sink: /one}\n- {table: /b, sink: 'file:///one/'}\n",
            "the sink file:///one is also that of the stream in",
        ),
        (
            "streams:\n- {table: /a, sink: /one}\n- {table: 'file:///a/b', sink: /two}\n",
            "is inside the table",
        ),
    ],
)
def test_one_place_is_recognized_however_it_is_written(text, problem):
    assert problem in one_problem(text)


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ("{uri: /b, provenance: no}", DeltaAppendSink("/b")),
        ("{uri: /b, provenance: yes, partition_by: 'day, region'}", DeltaAppendSink("/b", ("day", "region"), True)),
        ("{uri: /b, kind: delta_merge, keys: id, scd: '2'}", DeltaMergeSink("/b", keys=("id",), scd=2)),
        (
            '{uri: /b, constant_columns: \'{"crm": 1}\', properties: \'{"delta.appendOnly": "true"}\'}',
            DeltaAppendSink("/b", constant_columns={"crm": 1}, properties={"delta.appendOnly": "true"}),
        ),
        (
            "{kind: foreach_batch, function: 'a:b', writes: 'one,two'}",
            ForeachBatchSink("a:b", writes=("one", "two")),
        ),
        ("{kind: foreach_batch, function: 'a:b', writes: '{\"one\": \"/t\"}'}", ForeachBatchSink("a:b", {"one": "/t"})),
    ],
)
def test_a_text_stands_for_a_value_of_another_type(sink, expected):
    (stream,) = read(f"streams:\n- {{table: /a, sink: {sink}}}\n")["default"].streams
    assert stream.sink == expected


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ("{uri: /b, provenance: maybe}", "provenance must be true or false, got 'maybe'"),
        ("{uri: /b, kind: delta_merge, keys: 'id,'}", "keys must be names such as 'id,region', got 'id,'"),
        ("{uri: /b, properties: x}", "properties must be a mapping such as"),
        ("{uri: /b, kind: delta_merge, keys: id, scd: two}", "scd must be an integer of at least 1, got 'two'"),
    ],
)
def test_a_text_that_stands_for_no_value_is_a_problem(sink, problem):
    assert problem in one_problem(f"streams:\n- {{table: /a, sink: {sink}}}\n")


def test_a_table_by_name_has_the_parts_of_its_name():
    text = """\
streams:
  - {table: main.`my sales`.orders, catalog_conn_id: unity, sink: "/bronze/{schema}/{table}"}
"""
    found, _ = parse_fleet_file(text, "f.yaml", {})
    (one,) = found.groups[0].streams
    assert (one.name, one.stream.catalog_conn_id, one.sink.uri) == ("orders", "unity", "/bronze/my sales/orders")


def test_sinks_have_names_of_a_catalog():
    text = """\
defaults:
  sink: {uri: "bronze.{table}", catalog_conn_id: hive, create: true}
streams:
  - {table: sales.orders, catalog_conn_id: hive}
  - {table: /raw/lines, sink: {location: /lake/lines, create: yes}}
  - {table: /raw/customers, sink: bronze.people}
  - {table: /raw/days, sink: {uri: /lake/days, catalog_conn_id: null, create: null}}
  - {tables: /other/*}
"""
    found, document = parse_fleet_file(text, "f.yaml", {})
    assert not document.problems
    orders, lines, customers, days = (one.sink for one in found.groups[0].streams)
    assert orders == DeltaAppendSink("bronze.orders", catalog_conn_id="hive", create=True)
    assert (lines.uri, lines.location) == ("bronze.lines", "/lake/lines")
    assert customers == DeltaAppendSink("bronze.people", catalog_conn_id="hive", create=True)
    assert days == DeltaAppendSink("/lake/days")
    (pattern,) = found.groups[0].patterns
    assert pattern.stream_of("/other/regions").sink.table_uri == "catalog://hive/bronze.regions"


def test_sinks_by_name_are_compared_with_each_other_and_with_sources():
    text = """\
streams:
  - {table: raw.a, catalog_conn_id: hive, sink: {uri: bronze.a, catalog_conn_id: hive}}
  - {table: raw.b, catalog_conn_id: hive, sink: {uri: bronze.a, catalog_conn_id: hive}}
  - {table: bronze.c, catalog_conn_id: hive, sink: {uri: bronze.d, catalog_conn_id: hive}}
  - {table: raw.e, catalog_conn_id: hive, sink: {uri: bronze.c, catalog_conn_id: hive}}
  - {table: raw.f, catalog_conn_id: hive, sink: {uri: bronze.c, catalog_conn_id: glue}}
  - {table: raw.g, catalog_conn_id: hive, sink: bronze.g}
  - {table: raw.h, catalog_conn_id: hive, sink: {uri: bronze, catalog_conn_id: hive}}
  - {table: raw.i, catalog_conn_id: hive, sink: {uri: bronze.i, catalog_conn_id: hive, location: /lake/i}}
"""
    _, document = parse_fleet_file(text, "f.yaml", {})
    problems = sorted(problem.text for problem in document.problems)
    assert len(problems) == 5, problems
    for words in (
        "the sink catalog://hive/bronze.a is also that of the stream",
        "the table catalog://hive/bronze.c is the sink catalog://hive/bronze.c",
        "'bronze.g' looks like a name in a catalog",
        "'bronze' has 1 part",
        "needs create=True",
    ):
        assert [text for text in problems if words in text], words


def test_a_name_without_a_connection_is_a_problem():
    text = """\
streams:
  - {table: main.sales.orders, sink: /bronze/orders}
  - {table: sales., catalog_conn_id: unity, sink: /bronze/lines}
  - {tables: main.sales.*, sink: "/bronze/{table}"}
"""
    _, document = parse_fleet_file(text, "f.yaml", {})
    unnamed, wrong, pattern = (problem.text for problem in document.problems)
    assert "Set catalog_conn_id to the Airflow connection of that catalog" in unnamed
    assert "its part 2 is empty" in wrong
    assert "looks like names in a catalog. Set catalog_conn_id" in pattern


def test_a_pattern_by_name_has_the_parts_of_the_names_and_leaves_out_what_is_listed():
    text = """\
defaults: {catalog_conn_id: unity, sink: "/bronze/{schema}/{table}"}
streams:
  - {table: main.sales.Orders, name: my_orders}
  - {tables: main.sales.*, name: "sales.{table}", exclude: [tmp_*]}
  - {tables: main.`my sales`.ord*}
  - {table: /raw/orders, catalog_conn_id: null}
"""
    found, _ = parse_fleet_file(text, "f.yaml", {})
    whole, some = found.groups[0].patterns
    assert (whole.catalog_conn_id, whole.exclude) == ("unity", ("tmp_*", "Orders"))
    one = whole.stream_of("main.sales.lines")
    assert (one.name, one.stream.table, one.stream.catalog_conn_id, one.sink.uri) == (
        "sales.lines", "main.sales.lines", "unity", "/bronze/sales/lines"
    )  # fmt: skip
    one = some.stream_of("main.`my sales`.orders")
    assert (one.name, one.sink.uri) == ("ers", "/bronze/my sales/orders")
    assert [one.stream.catalog_conn_id for one in found.groups[0].streams] == ["unity", None]


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ("/raw/*", "is not the name of tables in a catalog"),
        ("s3://lake/a.b*", "is a path, and a catalog has names"),
        ("orders_*", "is not the name of tables in a catalog"),
        ("main.*.orders", "must have each '*' in its last part. Use one pattern for each schema"),
        ("main.*.*", "must have each '*' in its last part"),
        ("main.sales.**", "must have each '*' in its last part"),
        ("main.sales.orders", "has no '*'. Write main.sales.*"),
        ("main..ord*", "its part 2 is empty"),
        ("{{ params.tables }}.*", "is a template"),
    ],
)
def test_a_pattern_that_names_no_tables_of_a_schema_is_a_problem(tables, problem):
    text = f'streams:\n- {{tables: "{tables}", catalog_conn_id: unity, sink: "/bronze/{{table}}"}}\n'
    assert problem in one_problem(text)
