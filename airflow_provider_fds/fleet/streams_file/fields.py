"""The keys of a file of streams, each with its values and its meaning; the JSON Schema is made of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.spec import ACTIONS
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink, PostgresSink
from airflow_provider_fds.source.options.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_provider_fds.sinks import Sink

TEXT: Final = {"type": "string", "minLength": 1}
TEXTS: Final = {"type": "array", "items": TEXT}
FLAG: Final = {"type": "boolean"}
COUNT: Final = {"type": "integer", "minimum": 1}
DURATION: Final = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": "^[0-9.]+ *[a-z]*$"}]
}
SIZE: Final = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+ *[A-Za-z]*$"}]}


@dataclass(frozen=True)
class Key:
    """A key of the file.

    Attributes:
        about: Its meaning, for editors.
        schema: JSON Schema of its value.
    """

    about: str
    schema: Mapping[str, Any]


def one_of(*values: str) -> dict[str, Any]:
    """Return the schema of a choice."""
    return {"enum": list(values)}


#: The sinks that a fleet can have, by the word for them in the file.
SINKS: Final[dict[str, type[Sink]]] = {
    sink.kind: sink for sink in (DeltaAppendSink, DeltaMergeSink, ForeachBatchSink, PostgresSink)
}

#: Keys of the file.
TOP_KEYS: Final = ("defaults", "groups", "streams")

#: Keys of a stream beside its source options, and of ``defaults``.
STREAM_KEYS: Final[dict[str, Key]] = {
    "table": Key("URI or path of the source table, or its name in a catalog.", TEXT),
    "tables": Key(
        "URI or path with '*' in its folders, or a name in a catalog with '*' in its last part: the tables found there "
        "when a run begins.",
        TEXT,
    ),
    "name": Key("Name of the stream, with parts such as {table}; default: {table}, or the text of all '*'.", TEXT),
    "group": Key("The group that loads the stream; default: 'default'.", TEXT),
    "sink": Key("Where the rows go: a URI, or a mapping.", {}),
    "shares_sink": Key("Whether other streams of the file may load into the same sink.", FLAG),
    "batch_timeout": Key("The longest time that Spark may take for one batch.", DURATION),
    "include": Key("Of the tables found: only those that match one of these names or paths.", TEXTS),
    "exclude": Key("Of the tables found: not those that match one of these names or paths.", TEXTS),
    "new_tables": Key("What happens when a table appears after the first run.", one_of("start", "alert", "ignore")),
    "storage_conn_id": Key("Airflow connection for the storage of table and staging.", TEXT),
    "catalog_conn_id": Key("Airflow connection of the catalog that has the names of the tables.", TEXT),
    "staging": Key("URI of the folder for ledger and manifests; default: [fds] staging.", TEXT),
    "checkpoint": Key(
        "Where to keep the committed offset: variable, xcom, asset or file:<path>, with parts such as {name}.", TEXT
    ),
    "allow_overlap": Key("Whether the stream may append versions that another stream appends to the sink.", FLAG),
    "expect": Key(
        "What each row should satisfy before it is written: SQL expressions, each with what becomes of a batch or row "
        "that does not.",
        {"type": "object", "additionalProperties": one_of(*ACTIONS), "minProperties": 1},
    ),
    "max_rejected": Key(
        "Greatest share of a batch's rows that expectations may keep out of the sink.",
        {"type": "number", "minimum": 0, "maximum": 1},
    ),
    "rejects": Key("URI of the Delta table of rejected rows, with parts such as {table}.", TEXT),
    "fork_of": Key("Name of the stream that a new one continues.", TEXT),
}

#: Keys that only an entry with ``table`` has, and only one with ``tables``.
ONLY_TABLE: Final = frozenset({"fork_of"})
ONLY_TABLES: Final = frozenset({"include", "exclude", "new_tables"})
#: Keys that ``defaults`` cannot have: they belong to one stream.
NO_DEFAULT: Final = frozenset({"table", "tables", "fork_of"})

#: Keys of ``alerts``.
ALERT_KEYS: Final[dict[str, Key]] = {
    "lag": Key("Alert when the oldest version that is not committed is at least this old.", DURATION),
    "retention_left": Key("Alert when the table's retention protects that version no longer than this.", DURATION),
    "notifiers": Key("Functions or Airflow notifiers, each as 'pkg.module:name'.", TEXTS),
}

#: Keys of ``spark``: arguments of SparkSubmitOperator.
SPARK_KEYS: Final[dict[str, Key]] = {
    name: Key(f"{name} of SparkSubmitOperator.", schema)
    for schema, names in (
        ({"type": "object"}, ("conf",)),
        (COUNT, ("executor_cores", "num_executors", "total_executor_cores")),
        (
            TEXT,
            (
                "archives", "delta_version", "driver_memory", "exclude_packages", "executor_memory", "files", "jars",
                "packages", "properties_file", "py_files", "queue", "repositories", "spark_binary", "yarn_queue",
            ),
        ),
    )
    for name in names
}  # fmt: skip

#: Keys of a group.
GROUP_KEYS: Final[dict[str, Key]] = {
    "conn_id": Key("Airflow connection of Spark: type spark or spark_connect; default: spark_default.", TEXT),
    "schedule": Key("A cron expression, a preset such as @hourly, or a time between runs such as 15m.", TEXT),
    "dag_id": Key("Id of the group's DAG; default: fds_<group>.", TEXT),
    "dag_per": Key("One DAG for the group, or one for each stream.", one_of("group", "stream")),
    "tags": Key("Tags of the group's DAGs.", TEXTS),
    "parallelism": Key("How many streams Spark loads at the same time; default: 8.", COUNT),
    "pool": Key("Airflow pool of the group's tasks.", TEXT),
    "on_stream_failure": Key(
        "What a failed stream means for the task.", one_of("fail_at_end", "continue", "fail_fast")
    ),
    "on_gone": Key(
        "What a table of a pattern that is gone means for the task; default: alert.", one_of("alert", "fail", "retire")
    ),
    "max_bytes_in_flight": Key("Bytes of all batches that Spark loads at the same time.", SIZE),
    "run_time_limit": Key("Once this much time has passed, a run starts no further batch.", DURATION),
    "batches_per_application": Key("Maximum number of batches of a stream in one Spark application.", COUNT),
    "wait": Key("Whether the task waits until a table has something new.", FLAG),
    "poll_interval": Key("With wait: time between two polls.", DURATION),
    "linger": Key(
        "Once everything is loaded, the task stays for what comes until nothing has come for this long.", DURATION
    ),
    "alerts": Key("When to alert.", {}),
    "spark": Key("Arguments of SparkSubmitOperator, such as conf and driver_memory.", {}),
    "defaults": Key("Values for each stream of the group; they decide over those of the file.", {}),
}


def source_options() -> tuple[str, ...]:
    """Return the names of the source options."""
    return tuple(field.name for field in fields(SourceOptions))


@cache
def sink_keys(kind: str) -> tuple[str, ...]:
    """Return the arguments of a sink; none if there is no such kind."""
    return tuple(field.name for field in fields(SINKS[kind])) if kind in SINKS else ()


def unknown_key(key: str, known: Collection[str], where: str) -> str:
    """Return what is wrong with a key, with the nearest known one.

    >>> unknown_key("shedule", ["schedule", "pool"], "a group")
    "a group has no key 'shedule'. Did you mean 'schedule'?"
    """
    near = get_close_matches(key.lower().replace("-", "_"), list(known), n=1, cutoff=0.55)
    hint = f"Did you mean {near[0]!r}?" if near else f"Its keys are {', '.join(known)}."
    return f"{where} has no key {key!r}. {hint}"
