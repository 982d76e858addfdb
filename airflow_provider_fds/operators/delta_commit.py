"""``DeltaCommitOperator``: move the offset past a batch that your own job has loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.hooks.settings import retention
from airflow_provider_fds.operators.lineage.emits_lineage import EmitsLineage
from airflow_provider_fds.operators.lineage.outlets import default_outlet
from airflow_provider_fds.operators.links import ShowsLinks
from airflow_provider_fds.operators.task.wiring import check_wiring
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaSink
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.sinks import DeltaAppendSink, Sink

#: State of a mapped task's instance that no longer exists because the mapped list has become shorter.
_REMOVED = "removed"


class DeltaCommitOperator(ValueTemplates, ShowsLinks, EmitsLineage, BaseOperator):
    """Commits the batch of a :class:`DeltaPlanOperator`: moves the stream's offset past it.

    It is the last of three tasks: plan, your own load job, commit.

    Contract:
        - It commits if every task between the plan and itself has the state ``success`` in this run, regardless of its
          own trigger rule. Otherwise it fails without a retry.
        - With ``verify=`` it also requires that the sink's transaction is exactly the batch's ``txn_version``.
        - A second commit of the same batch by the same run changes nothing.
        - The XCom is what the run has committed, as for :class:`DeltaIngestOperator`.

    Misuse:
        ``batch=plan.output`` alone makes the plan the only upstream of the commit. It would then run alongside the
        load, or after the load failed. Both operators reject this wiring: the plan before anything is loaded, and the
        commit as a second check.

    Args:
        batch: ``plan.output``.
        stream: The stream; if given, the operator checks that the batch belongs to it.
        verify: The sink whose transaction must match ``txn_version``; see above.

    Examples:
        ``plan >> load >> DeltaCommitOperator(task_id="commit", batch=plan.output)``
    """

    template_fields: Sequence[str] = ("batch", "stream", "verify")
    ui_color = "#d9f2e6"

    def __init__(
        self,
        *,
        batch: Mapping[str, str],
        stream: DeltaStream | Mapping[str, Any] | None = None,
        verify: DeltaAppendSink | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if stream is not None:
            DeltaStream.refuse_others(stream)
        super().__init__(**kwargs)
        self.batch = batch
        self.stream = stream
        self.verify = verify
        if not self.outlets and verify is not None:
            self.outlets = [default_outlet(self.dag_id, self.task_id)]

    def execute(self, context: Any) -> dict[str, Any]:
        """Commit the batch and return what this run has committed."""
        from airflow_provider_fds.hooks.stats import sending_status
        from airflow_provider_fds.operators.lineage import asset_event
        from airflow_provider_fds.operators.lineage.gathered_lineage import gathering
        from airflow_provider_fds.operators.run.sessions import session_context
        from airflow_provider_fds.stream.run.purge import purge_stream
        from airflow_provider_fds.stream.run.session import StreamSession

        self.show_links({})
        with task_failures(context, self.stream):
            stream = self._stream()
            verify = None if self.verify is None else coerce_sink(self.verify)
            if verify is not None and not isinstance(verify, DeltaSink):
                raise ConfigurationError(
                    "verify must be a sink that is a Delta table, because FDS looks up its transactions; got "
                    f"{verify!r}."
                )
            self._check_loaded(context)
            stream_context = session_context(
                context,
                stream,
                verify,
                plan_task_id=self.batch["plan_task_id"],
                plan_map_index=int(self.batch["plan_map_index"]),
                is_three_task=True,
            )
            session = StreamSession(stream, stream_context)
            with (
                sending_status(session, context),
                self.showing_links(session, verify),
                gathering(self, session, verify),
            ):
                result = session.commit_user_job(self.batch, verify=verify)
            if (note := session.option_notes()) is not None:
                result = replace(result, warnings=[*result.warnings, note])
            purge_stream(session.connected, retention())
        extra = asset_event.uncovered(
            self,
            result.to_dict(),
            verify.table_uri if verify else None,
            epoch_start=session.connected.state.epoch_start,
        )
        asset_event.emit(self, context, extra, verify.table_uri if verify else None)
        self.log.info("Stream %s: committed up to %s.", result.stream, result.end)
        return result.to_dict()

    def _lineage_ends(self) -> tuple[DeltaStream, Sink | None]:
        return self._stream(), None if self.verify is None else coerce_sink(self.verify)

    def _stream(self) -> DeltaStream:
        from airflow_provider_fds.operators.run.batch_message import stream_of

        stream = stream_of(self.batch)
        if self.stream is not None and (given := DeltaStream.coerce(self.stream)) != stream:
            raise ConfigurationError(
                f"The batch belongs to {stream!r}, but this task was given {given!r}. Give both operators the same "
                "stream, or omit it here.",
                table=stream.table,
                reason=Reason.WIRING_INVALID,
            )
        return stream

    def _check_loaded(self, context: Any) -> None:
        """Raise ``ConfigurationError`` unless every task between plan and commit has succeeded in this run."""
        ti = context["ti"]
        plan = self.batch["plan_task_id"]
        between = check_wiring(self.dag, plan, self.task_id)
        states = ti.get_task_states(
            dag_id=ti.dag_id,
            task_ids=sorted(between),
            run_ids=[ti.run_id],
            # in a mapped task group, only the instances of the same branch count
            map_index=ti.map_index if ti.map_index >= 0 else None,
        ).get(ti.run_id, {})
        seen = {key: getattr(state, "value", state) for key, state in states.items()}
        missing = [task_id for task_id in between if not any(_is_instance(key, task_id) for key in seen)]
        wrong = {key: state for key, state in seen.items() if state not in ("success", _REMOVED)}
        wrong.update(dict.fromkeys(missing, "no instance"))
        if wrong:
            found = ", ".join(f"{key}: {state}" for key, state in sorted(wrong.items()))
            raise ConfigurationError(
                f"Batch {self.batch['batch_id']} of stream {self.batch['stream']!r} is not committed: every task "
                f"between {plan!r} and {self.task_id!r} must have succeeded in this run, found {found}. Repair and "
                "clear those tasks; the plan stays, so the load works on the same rows again.",
                reason=Reason.BATCH_NOT_LOADED,
            )


def _is_instance(key: str, task_id: str) -> bool:
    """Whether a key of ``get_task_states`` is an instance of the task: ``<task>`` or ``<task>_<map index>``."""
    return key == task_id or (key.startswith(f"{task_id}_") and key.removeprefix(f"{task_id}_").isdigit())
