"""What a driver met, in words for people: class, message without secrets, retry or not."""

from __future__ import annotations

import pytest

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain, has_condition, is_conflict, shortened
from airflow_provider_fds.spark.writers.rows.user_code import call


def chained(*texts: str) -> Exception:
    """A chain of causes, outermost first."""
    error: Exception | None = None
    for text in reversed(texts):
        outer = RuntimeError(text)
        outer.__cause__ = error
        error = outer
    assert error is not None
    return error


def test_only_a_closed_connect_client_counts_as_an_ended_session():
    from pyspark.errors import PySparkRuntimeError
    from pyspark.errors.exceptions.connect import SparkConnectException

    closed = explain(SparkConnectException(errorClass="NO_ACTIVE_SESSION", messageParameters={}))
    assert (closed.error_class, closed.retryable) == ("SPARK_SESSION_ENDED", True)
    for said in ('status = StatusCode.CANCELLED details = "Channel closed!"', "Cannot invoke RPC on closed channel!"):
        assert explain(ValueError(said)).error_class == "SPARK_SESSION_ENDED"
    other = explain(PySparkRuntimeError(errorClass="NO_ACTIVE_SESSION", messageParameters={}))
    assert other.error_class != "SPARK_SESSION_ENDED"


def uses_a_client_that_is_closed(batch):
    raise ValueError(f"Cannot invoke RPC on closed channel! (batch {batch})")


def test_a_client_that_was_closed_under_a_users_function_is_not_its_bug():
    with pytest.raises(ValueError, match="closed channel") as caught:
        uses_a_client_that_is_closed("b")
    failure = explain(caught.value)
    assert (failure.error_class, failure.retryable) == ("SPARK_SESSION_ENDED", True)
    with pytest.raises(RefusalError, match="the session on the Spark Connect server was ended") as refused:
        call(uses_a_client_that_is_closed, "load", "the function", "b")
    assert (refused.value.reason, refused.value.retryable) == ("SPARK_SESSION_ENDED", True)


@pytest.mark.parametrize(
    ("status", "expected"), [("UNKNOWN", "SPARK_SESSION_ENDED"), ("UNAVAILABLE", "SPARK_CONNECT_LOST")]
)
def test_a_server_that_goes_away_under_a_users_function_is_not_its_failure(status, expected):
    grpc = pytest.importorskip("grpc")
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    def load(df):
        said = f'<RPC that terminated with: status = StatusCode.{status} details = ""'
        raise SparkConnectGrpcException(said, grpc_status_code=grpc.StatusCode[status])

    with pytest.raises(RefusalError) as refused:
        call(load, "load", "the function", None)
    assert (refused.value.reason, refused.value.retryable) == (expected, True)


def test_an_error_inside_the_connect_client_is_not_one_of_a_users_function():
    grpc = pytest.importorskip("grpc")
    channel = grpc.insecure_channel("127.0.0.1:1")
    ask = channel.unary_unary("/no/such")
    channel.close()
    with pytest.raises(ValueError, match="closed") as caught:
        ask(b"")
    error = ValueError("Of another wording")
    error.__traceback__ = caught.value.__traceback__.tb_next  # as if pyspark had called the client
    assert explain(error).error_class != "USER_FUNCTION_FAILED"


def test_an_operation_that_the_server_ended_without_a_reason_is_one_for_a_retry():
    said = '<_MultiThreadedRendezvous of RPC that terminated with: status = StatusCode.UNKNOWN details = "{}" debug …'
    ended = explain(ValueError(said.format("")))
    assert (ended.error_class, ended.retryable) == ("SPARK_SESSION_ENDED", True)
    assert "ended the operation without a reason" in ended.message
    assert "A retry checks the sink" in ended.message
    assert explain(ValueError(said.format("no such host"))).error_class != "SPARK_SESSION_ENDED"


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.ClassNotFoundException: org.apache.spark.sql.delta.catalog.DeltaCatalog",
        (
            "[CANNOT_LOAD_CATALOG] Cannot find catalog plugin class for catalog 'spark_catalog': "
            "org.apache.spark.sql.delta.catalog.DeltaCatalog."
        ),
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name is correct",
        "Failed to find data source: delta. Please find packages at https://spark.apache.org",
    ],
)
def test_a_spark_without_delta_is_named_with_the_delta_it_needs(monkeypatch, said):
    monkeypatch.setattr("pyspark.__version__", "4.0.1")
    failure = explain(chained("An error occurred while calling o1.load", said))
    assert (failure.error_class, failure.retryable) == ("SPARK_VERSION_MISMATCH", False)
    assert failure.message.startswith(
        "this Spark (4.0.1) has no Delta but needs io.delta:delta-spark_2.13:4.0.0. Omit delta_version='provided'"
    )


def test_another_missing_class_or_format_is_not_reported_as_missing_delta():
    for said in ("java.lang.ClassNotFoundException: org.postgresql.Driver", "Failed to find data source: deltas"):
        assert explain(chained(said)).error_class != "SPARK_VERSION_MISMATCH"


GONE = (
    "[TASK_WRITE_FAILED] Task failed while writing rows to file:/sink. SQLSTATE: 58030",
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/src/part-1.parquet. File does not",
    "File file:/src/part-1.parquet does not exist",
)


def test_lost_data_files_are_named_and_not_tried_again():
    failure = explain(chained(*GONE))
    assert (failure.error_class, failure.retryable) == ("FAILED_READ_FILE.FILE_NOT_EXIST", False)
    assert failure.message == "Spark does not find a data file (file:/src/part-1.parquet), and nothing was written"


def test_a_lost_vector_is_named_although_its_folder_has_spaces():
    path = "file:/my lake/deletion_vector_d2c639aa.bin"
    failure = explain(chained(*GONE[:2], f"File {path} does not exist"))
    assert f"does not find a data file ({path}), and" in failure.message


def test_the_innermost_condition_names_the_failure():
    error = chained(GONE[0], "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (id > 0) violated")
    found = explain(error)
    assert found.error_class == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert "Change the constraint of the sink and run the stream again, or leave such rows out" in found.message
    assert explain(error).retryable is False


@pytest.mark.parametrize(
    "text",
    [
        "[DELTA_CONCURRENT_TRANSACTION] This occurs when multiple streaming queries are using the same checkpoint",
        "[DELTA_PROTOCOL_CHANGED.EMPTY_WRITE] ProtocolChangedException: The protocol version of the table has changed",
        "(io.delta.exceptions.ConcurrentTransactionException) something",
    ],
)
def test_the_message_about_a_lost_race_names_no_streaming_queries_and_is_retryable(text):
    failure = explain(chained(text))
    assert is_conflict(chained(text))
    assert failure.retryable is True
    assert "another writer" in failure.message
    assert "streaming" not in failure.message


@pytest.mark.parametrize(
    "text",
    [
        "[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'name' and 'name'. SQLSTATE: 22005",
        "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Data type mismatches when reading Parquet column",
        "[PATH_NOT_FOUND] Path does not exist: file:/x",
        "com.amazonaws AccessDeniedException: s3a://b: status code: 403",
    ],
)
def test_an_error_that_a_retry_cannot_fix_is_not_retried(text):
    assert explain(chained(text)).retryable is False


@pytest.mark.parametrize("text", ["Connection reset", "[INTERNAL_ERROR] x", "Java heap space", ""])
def test_an_unknown_failure_is_retried(text):
    assert explain(chained(text)).retryable is True


def test_a_damaged_file_is_distinguished_from_an_unreachable_one():
    read = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/a.parquet. SQLSTATE: KD001"
    assert explain(chained(read, "file:/a.parquet is not a Parquet file. Expected magic number")).retryable is False
    assert explain(chained(read, "Read timed out")).retryable is True


def test_the_stack_trace_is_not_part_of_the_message():
    text = "[SOME_ERROR] it broke\n\tat org.apache.Spark(Spark.scala:1)\nCaused by: more"
    assert explain(chained(text)).message == "[SOME_ERROR] it broke"


def test_a_refusal_by_fds_keeps_its_message():
    failure = explain(RefusalError("SINK_OUT_OF_ORDER", "batch 3 is out of turn"))
    assert (failure.error_class, failure.message, failure.retryable) == (
        "SINK_OUT_OF_ORDER",
        "batch 3 is out of turn",
        False,
    )


def test_conditions_are_found_anywhere_in_the_chain():
    assert has_condition(chained("outer", "[DELTA_MISSING_DELTA_TABLE] x"), "DELTA_MISSING_DELTA_TABLE")
    assert not has_condition(chained("outer"), "DELTA_MISSING_DELTA_TABLE")


@pytest.mark.parametrize(
    "text",
    [
        "fs.s3a.secret.key=HUSH",
        "password: HUSH",
        "https://user:HUSH@host/x",
        "https://a.blob.core.windows.net/c?sv=1&sig=HUSH",
        "X-Amz-Signature=HUSH",
        "aws_session_token = HUSH, next",
    ],
)
def test_possible_credentials_are_not_reported(text):
    assert "HUSH" not in redacted(text)
    assert "***" in redacted(text)


def test_a_container_of_azure_is_not_a_credential():
    uri = "abfss://container@account.dfs.core.windows.net/x"
    assert redacted(uri) == uri


def test_a_long_message_is_cut():
    assert len(shortened("x" * 10_000)) == 1500
    assert shortened("x" * 10_000).endswith("…")


def fails_on(row):
    return {"a": 1}[row]


def loses_the_network(row):
    raise ConnectionError(f"no way to the service for {row}")


@pytest.mark.parametrize(("function", "retryable"), [(fails_on, False), (loses_the_network, True)])
def test_a_function_that_fails_on_the_driver_is_named_with_line_and_file(function, retryable):
    with pytest.raises((KeyError, ConnectionError)) as caught:
        function("b")
    failure = explain(caught.value)
    line = function.__code__.co_firstlineno + 1
    reason = "USER_FUNCTION_INTERRUPTED" if retryable else "USER_FUNCTION_FAILED"
    assert (failure.reason, failure.retryable) == (reason, retryable)
    assert f"the function {function.__name__} failed at line {line} of {__file__}: " in failure.message


WORKER = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 3412, in main
    process()
  File "/jobs/clean.py", line 12, in to_cents
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)"""


def test_a_function_that_fails_in_a_worker_is_named_with_line_and_file():
    failure = explain(chained("[TASK_WRITE_FAILED] Task failed while writing rows to file:/sink.", WORKER))
    assert failure.error_class == "USER_FUNCTION_FAILED"
    said = "the function to_cents failed at line 12 of /jobs/clean.py: ValueError: invalid literal for int()"
    assert said in failure.message
    assert failure.retryable is False


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory, got 0. SQLSTATE: 53200",
        "Container killed by YARN for exceeding physical memory limits. 5.5 GB of 5.5 GB used",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Exit code 137",
    ],
)
def test_an_out_of_memory_error_says_what_to_do(text):
    failure = explain(chained("[TASK_WRITE_FAILED] Task failed while writing rows to file:/sink.", text))
    assert (failure.error_class, failure.retryable) == ("SPARK_OUT_OF_MEMORY", True)
    assert "executor_memory" in failure.message
    assert "max_bytes_per_batch" in failure.message
