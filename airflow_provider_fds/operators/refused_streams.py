"""``RefusedStreamsOperator``: the task of streams that a file of streams declares, but that cannot be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence


class RefusedStreamsOperator(BaseOperator):
    """Fails, without a retry, with what is wrong with streams, so that someone notices while the others are loaded.

    Args:
        problems: What is wrong, a sentence each.
    """

    def __init__(self, *, problems: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problems = tuple(problems)

    def execute(self, context: Any) -> NoReturn:
        """Fail.

        Raises:
            TaskFailedError: Always; names the problems.
        """
        with task_failures(context):
            raise ConfigurationError(*self.problems, subject="file", reason=Reason.INVALID_OPTION)
