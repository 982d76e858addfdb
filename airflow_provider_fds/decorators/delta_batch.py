"""``@task.delta_batch``: a Python function that gets the new rows of a table as a DataFrame."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import DecoratedOperator, task_decorator_factory

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.operators.delta_ingest import DeltaIngestOperator
from airflow_provider_fds.sinks import ForeachBatchSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk.bases.decorator import TaskDecorator

    from airflow_provider_fds.backends.base import Application, Outcome, SparkBackend
    from airflow_provider_fds.stream import DeltaStream

#: Parameters that the task provides by name.
_GIVEN: Final = ("df", "batch")


class DeltaBatchDecoratedOperator(DecoratedOperator, DeltaIngestOperator):
    """Calls a function with each batch of a stream, as ``function(df, batch)``, in the task's own process.

    The contract is that of :class:`DeltaIngestOperator` with a :class:`ForeachBatchSink`.

    Contract:
        - Each batch is planned and recorded first. It is committed after the function has returned and the return has
          been reported.
        - If the function raises, it gets the batch again, with the same rows, and the offset stays before the batch.
        - The function is called at least once for a batch. Each write to a Delta table with
          ``.options(**batch.txn_options(name))``, for the names in ``writes``, is applied exactly once; other side
          effects of the function may happen again.

    The function:
        - It has a parameter ``df``, and optionally ``batch``. Further parameters are passed by name when the decorated
          function is called (``load(limit=5)``), or have names from Airflow's context.
        - It returns nothing, or the number of rows it wrote, for the run's result.

    Spark:
        With a connection of type ``spark_connect`` the session is on that server. With one of type ``spark`` it starts
        inside the task, in client mode, and ends with it (``local[*]``, a standalone cluster; YARN and Kubernetes are
        expected to work, but have not been tried). The JVM's memory then counts towards the worker's.

    Misuse:
        - A write without ``txn_options`` lands again when a batch is repeated.
        - The stream is bound to the function's name: a second function with the same stream is refused.
        - Streams with ``read="data_interval"`` are refused.

    Args:
        python_callable: The function.
        stream: The stream, or a dict of its arguments.
        writes: The writes that the function makes to Delta tables, see :class:`ForeachBatchSink`.
        other_streams: UUIDs of streams that also write to a named table, see :class:`ForeachBatchSink`.
        op_args: Not supported: pass arguments by name.
        op_kwargs: Further arguments of the function.
        kwargs: Those of :class:`DeltaIngestOperator` except ``sink`` (``conn_id``, ``conf``, ``on_no_data``,
            ``on_busy``, ``batches_per_application``, ``run_time_limit``, ``conf_by_size``, ``wait`` …), and those of
            Airflow's tasks.
    """

    custom_operator_name = "@task.delta_batch"
    template_fields: Sequence[str] = (*DeltaIngestOperator.template_fields, *DecoratedOperator.template_fields)
    template_fields_renderers = DecoratedOperator.template_fields_renderers

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        stream: DeltaStream | Mapping[str, Any],
        writes: Sequence[str] | Mapping[str, str | None] = (),
        other_streams: Sequence[str] = (),
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        _check(python_callable, op_args, op_kwargs, kwargs)
        # arguments that the task provides are optional when the decorated function is called
        python_callable.__signature__ = _by_name(inspect.signature(python_callable))  # type: ignore[attr-defined]
        super().__init__(
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            stream=stream,
            sink=ForeachBatchSink(
                f"task:{python_callable.__name__}",
                writes if isinstance(writes, Mapping) else tuple(writes or ()),
                tuple(other_streams),
            ),
            **kwargs,
        )

    def load(self, context: Any, *, deadline: float | None, was_woken: bool = False) -> dict[str, Any] | None:
        """Load as the base class does, unless the task is mapped."""
        with task_failures(context, self.stream):
            if context["ti"].map_index >= 0:
                raise ConfigurationError(
                    f"task {self.task_id!r} is mapped: its instances would compete for the batches of one stream. "
                    "Call the function once; for several tables, map DeltaIngestOperator over streams."
                )
        return super().load(context, deadline=deadline, was_woken=was_woken)

    def find_spark(self, conn_id: str) -> SparkBackend:
        """Return the backend that runs jobs in this process."""
        return super().find_spark(conn_id).in_process()

    def run_spark(self, application: Application) -> Outcome:
        """Run an application that calls the user's function."""
        from airflow_provider_fds.spark.writers.rows.user_code import function_here

        sink = application.sink
        assert isinstance(sink, ForeachBatchSink)  # noqa: S101  # it was made here
        with function_here(sink.function, self._function(application.context)):
            return super().run_spark(application)

    def _function(self, context: Any) -> Callable[[Any, Any], Any]:
        """Return the user's function as ``function(df, batch)``, with its other arguments filled in."""
        wanted = inspect.signature(self.python_callable).parameters
        of_airflow = {name: context[name] for name in wanted if name in context}

        def called(df: Any, batch: Any) -> Any:
            given = {name: value for name, value in (("df", df), ("batch", batch)) if name in wanted}
            return self.python_callable(**{**of_airflow, **self.op_kwargs, **given})

        return called


def delta_batch_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Turn a function that receives each batch of a stream into a task; see :class:`DeltaBatchDecoratedOperator`.

    Used as ``@task.delta_batch(stream=…, writes=[…], conn_id=…)``.
    """
    if multiple_outputs:
        raise ConfigurationError(
            "@task.delta_batch: multiple_outputs is not available, because the XCom is the run's result."
        )
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=False,
        decorated_operator_class=DeltaBatchDecoratedOperator,
        **kwargs,
    )


def _by_name(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature with keyword-only parameters; those that the task provides are optional."""
    parameters = [
        parameter
        if parameter.kind is inspect.Parameter.VAR_KEYWORD
        else parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY, default=None if parameter.name in _GIVEN else parameter.default
        )
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _check(
    function: Callable[..., Any],
    op_args: Sequence[Any] | None,
    op_kwargs: Mapping[str, Any] | None,
    kwargs: Mapping[str, Any],
) -> None:
    """Refuse a function or arguments that the task cannot use."""
    name = getattr(function, "__name__", repr(function))
    problems = []
    if not name.isidentifier() or inspect.iscoroutinefunction(function):
        problems.append(f"{name} is not a named function (def), so the stream cannot be bound to it.")
    if "df" not in inspect.signature(function).parameters:
        problems.append(f"function {name} has no parameter df, which receives the rows of the batch.")
    by_position = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    ]
    if by_position:
        problems.append(
            f"function {name} takes {', '.join(by_position)} by position only, but arguments are passed by name."
        )
    if op_args:
        problems.append(f"{name}(…) got {len(op_args)} positional arguments; pass them by name.")
    if taken := [key for key in _GIVEN if key in (op_kwargs or {})]:
        problems.append(f"{name}(…) got {', '.join(taken)}, which the task passes when it runs.")
    if kwargs.get("deferrable"):
        problems.append("deferrable=True is not available: the function runs in the task's own process. Omit it.")
    if "sink" in kwargs:
        problems.append("sink is not an argument: the function is the sink.")
    if problems:
        raise ConfigurationError(*problems, subject="@task.delta_batch")
