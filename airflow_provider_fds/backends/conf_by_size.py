"""Spark settings that depend on the size of a batch: what a large batch needs, a small one need not pay for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options import option_values

if TYPE_CHECKING:
    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.session import StreamSession

#: What a user gives: pairs of bytes and settings, or a function from bytes to settings.
ConfBySizeArgument = Sequence[tuple[int | str, Mapping[str, Any]]] | Callable[[int], Mapping[str, Any]]

#: Argument of ``SparkSubmitOperator`` -> the setting that spark-submit ignores beside it.
_OVERRIDING: Final = {
    "driver_memory": "spark.driver.memory",
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "num_executors": "spark.executor.instances",
    "total_executor_cores": "spark.cores.max",
}

_FORM: Final = "[('1g', {'spark.executor.instances': 2}), ('500g', {'spark.executor.instances': 40})]"


@dataclass(frozen=True)
class ConfBySize:
    """The parsed form of ``conf_by_size``.

    Attributes:
        steps: Sizes in bytes (inclusive), rising, with the settings of batches up to there; empty with a function.
        function: Returns the settings of a size in bytes, ``None`` with steps.
    """

    steps: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    function: Callable[[int], Mapping[str, Any]] | None = None

    @classmethod
    def parse(cls, value: object) -> ConfBySize:
        """Check what the user has given.

        Raises:
            ConfigurationError: Reports all problems at once.
        """
        if callable(value):
            return cls(function=value)
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence) or not value:
            raise ConfigurationError(
                f"conf_by_size must be pairs of a size and settings, such as {_FORM}, or a function from bytes to "
                f"settings, got {value!r}."
            )
        steps: list[tuple[int, Mapping[str, Any]]] = []
        problems = []
        for pair in value:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:  # noqa: PLR2004  # a pair
                problems.append(f"conf_by_size must have pairs of a size and settings, such as {_FORM}, got {pair!r}.")
                continue
            given, conf = pair
            try:
                size = option_values.size(given)
            except ValueError as error:
                problems.append(f"a size of conf_by_size {error}.")
                continue
            if steps and size <= steps[-1][0]:
                problems.append(
                    f"the sizes of conf_by_size must increase: {given!r} is {size:,} bytes, after {steps[-1][0]:,}."
                )
            problems += _conf_problems(conf)
            steps.append((size, conf))
        if problems:
            raise ConfigurationError(*problems, subject="argument conf_by_size")
        return cls(steps=tuple(steps))

    def of(self, num_bytes: int) -> dict[str, Any]:
        """Return the settings of a batch. Those of the last pair also apply to larger batches.

        Raises:
            ConfigurationError: The function does not return settings.
        """
        if self.function is None:
            fitting = (conf for size, conf in self.steps if num_bytes <= size)
            return dict(next(fitting, self.steps[-1][1]))
        conf = self.function(num_bytes)
        if problems := _conf_problems(conf):
            raise ConfigurationError(*problems, subject=f"result of conf_by_size for {num_bytes:,} bytes")
        return dict(conf)

    @property
    def settings(self) -> set[str]:
        """The names of all settings of the steps."""
        return {key for _, conf in self.steps for key in conf}


def overriding(settings: Iterable[str], arguments: Mapping[str, Any]) -> list[str]:
    """Return the arguments of ``SparkSubmitOperator`` that spark-submit prefers to ``settings``, one sentence each."""
    names = set(settings)
    return [
        f"{argument} and {setting} in conf_by_size cannot be combined, because spark-submit ignores the setting then. "
        f"Omit {argument}; a default for all sizes can be in conf."
        for argument, setting in _OVERRIDING.items()
        if setting in names and arguments.get(argument) is not None
    ]


def largest_transaction(session: StreamSession, work: RunWork) -> int:
    """Return the planned bytes of the largest transaction of a run's work, 0 without batches."""
    transactions = session.scope.transactions(work.batches) if work.batches else []
    return max((sum(part.num_bytes for part in one.parts) for one in transactions), default=0)


def _conf_problems(conf: object) -> list[str]:
    if not isinstance(conf, Mapping):
        return [
            f"conf_by_size must have Spark settings by name, such as {{'spark.executor.memory': '8g'}}, got {conf!r}."
        ]
    return [
        f"a Spark setting of conf_by_size must be a string, a number or a boolean with a name, got {key!r}: {value!r}."
        for key, value in conf.items()
        if not isinstance(key, str) or not isinstance(value, str | int | float)
    ]
