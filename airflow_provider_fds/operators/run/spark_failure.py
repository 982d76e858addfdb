"""What a task says when its Spark application has not loaded a batch: without Spark's command, and if it was killed."""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_fds.errors import BatchFailedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.batch_failure import with_ending

#: How ``SparkSubmitHook`` begins: the whole command, which may be longer than everything else in the log.
_COMMAND: Final = re.compile(r"Cannot execute: .*?\. Error code is: (-?\d+)\.?", re.DOTALL)


def without_command(error: BaseException) -> str:
    """Return the message of an exception of spark-submit with the exit code in place of the command."""
    return _COMMAND.sub(r"spark-submit ended with exit code \1", str(error))


def explained(failure: BatchFailedError, spark_error: BaseException | None, *, was_killed: bool) -> BatchFailedError:
    """Return the error with which the task fails.

    Args:
        failure: The error of the batch that is not done.
        spark_error: What the backend raised, if anything.
        was_killed: Whether Airflow has killed the task.
    """
    if was_killed:
        reported = "" if failure.reason_code == Reason.SPARK_ENDED_EARLY else f". Spark's report: {failure}"
        return BatchFailedError(
            "Airflow killed this task while Spark worked for it: someone marked or cleared it, the scheduler gave it "
            "up, or its worker was stopped. The batch that Spark was loading is not committed. The next attempt or run "
            f"checks the sink first and works on the same rows{reported}",
            error_class=failure.error_class,
            table=failure.table,
            version=failure.version,
            reason=Reason.TASK_KILLED,
        )
    if spark_error is None:
        return failure
    first_line = without_command(spark_error).strip().split("\n", 1)[0]
    return with_ending(failure, f"{first_line[:1].upper()}{first_line[1:]}; the lines above say more")
