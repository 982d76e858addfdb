"""Prepares the rows of a batch for a sink: filter, transform, projection, constants. Standard library and pyspark.

Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import sql_literal
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain
from airflow_provider_fds.spark.runtime.sql import quoted_name
from airflow_provider_fds.spark.writers.rows.user_code import call, load_function

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink, PostgresSink

#: Columns of a batch that the source does not have.
COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE = "_commit_version", "_commit_timestamp", "_change_type"


def prepared(frame: Any, sink: Union[DeltaSink, PostgresSink]) -> Any:
    """Return the batch's rows after ``where``, ``transform``, ``columns`` and ``constant_columns``, in this order.

    Columns that a batch has in addition to the source's are kept beside the chosen ones.

    Raises:
        RefusalError: One of them does not fit the batch, or the user's function failed.
    """
    if sink.where is not None:
        try:
            frame = frame.where(sink.where)
        except Exception as error:
            raise _unfit(f"where={sink.where!r}", frame, error) from error
    if sink.transform is not None:
        # over Spark Connect, pyspark's DataFrame is another class
        result = call(load_function(sink.transform, "transform", ("df",)), sink.transform, "transform", frame)
        if not all(hasattr(type(result), name) for name in ("schema", "write", "select")):
            raise RefusalError(
                Reason.USER_FUNCTION_FAILED,
                f"transform {sink.transform} returned {type(result).__name__}, expected a DataFrame; nothing was "
                "written",
            )
        if is_connect(frame.sparkSession):
            # over Spark Connect nothing checks the columns before the write; this reports an error as the function's
            call(lambda: result.schema, sink.transform, "transform")
        frame = result
    if sink.columns:
        there = {name.lower() for name in frame.columns}
        missing = [name for name in sink.columns if name.lower() not in there]
        if missing:
            raise RefusalError(
                Reason.SINK_OPTION_UNUSABLE,
                f"columns of the sink names {', '.join(missing)}, but the batch has only "
                f"{', '.join(frame.columns)}: correct {type(sink).__name__}(columns=…)",
            )
        chosen = {name.lower() for name in sink.columns}
        kept = [c for c in (COMMIT_VERSION, COMMIT_TIMESTAMP) if c in there and c not in chosen]
        if sink.needs_keys and CHANGE_TYPE in there and CHANGE_TYPE not in chosen:
            kept.append(CHANGE_TYPE)
        frame = frame.select(*[quoted_name(name) for name in (*sink.columns, *kept)])
    return _with_constants(frame, sink) if sink.constant_columns else frame


def _with_constants(frame: Any, sink: Union[DeltaSink, PostgresSink]) -> Any:
    there = {name.lower() for name in frame.columns}
    if taken := [name for name in sink.constant_columns if name.lower() in there]:
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"the batch already has a column {', '.join(taken)}, which constant_columns would add to the sink "
            f"{sink.describe()}. Use another name, or leave the batch's column out with columns=…",
        )
    added = [f"{sql_literal(value)} AS {quoted_name(name)}" for name, value in sink.constant_columns.items()]
    return frame.selectExpr("*", *added)


def _unfit(what: str, frame: Any, error: Exception) -> RefusalError:
    failure = explain(error)
    return RefusalError(
        Reason.SINK_OPTION_UNUSABLE,
        f"{what} of the sink does not fit the batch, whose columns are {', '.join(frame.columns)}: {failure.message}",
    )
