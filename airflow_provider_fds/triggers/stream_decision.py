"""``StreamDecisionTrigger``: wait until a person has decided what a stream in quarantine does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail, update_hitl_detail_response
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.hooks.places import open_folder
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.actions.stop_choices import STOP, decision_on
from airflow_provider_fds.triggers.pacing import note_start, pause_seconds, poll_slot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: Seconds between two polls, at most: a person who has answered is waiting.
LONGEST_INTERVAL: Final = 10.0


class StreamDecisionTrigger(BaseTrigger):
    """Fires once the question about a stream in quarantine is answered, in Airflow or elsewhere, or its time is over.

    A poll asks staging for the next ledger entry and Airflow for the answer, one request each. If the ledger has the
    decision, or the time is over, the trigger answers the question in Airflow, so that it is no longer shown as open.
    A poll that is refused is repeated with growing pauses; only an answer or the time ends the wait.

    Events:
        ``{"chosen_options": [str], "params_input": dict, "responded_by_user": {"id", "name"} | None, "timedout":
        bool}``, as Airflow 3.3 itself sends when a person answers, ``version``, ``about``, and ``in_ledger``: whether
        the choice is only what the ledger had. Without a person, the time is over or the ledger has the decision.

    Args:
        stream: Name of the stream.
        staging: URI of its staging folder.
        storage_conn_id: Airflow connection of staging; ``None``: the environment's credentials.
        version: The version that the stream stops before.
        about: Which stop it is, see :func:`~.stop_choices.asked_about`.
        ti_id: Id of the task instance, which is that of the question.
        until: When to stop waiting, in seconds since the epoch; ``None``: never.
        poll_interval: Seconds between two polls.
        obsolete: Arguments that an older or newer version of FDS has stored; ignored.
    """

    def __init__(
        self,
        *,
        stream: str,
        staging: str,
        ti_id: str,
        storage_conn_id: str | None = None,
        version: int | None = None,
        about: str | None = None,
        until: float | None = None,
        poll_interval: float = LONGEST_INTERVAL,
        **obsolete: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream = stream
        self.staging = staging
        self.ti_id = ti_id
        self.storage_conn_id = storage_conn_id
        self.version = version
        self.about = about
        self.until = until
        self.poll_interval = min(float(poll_interval), LONGEST_INTERVAL)
        self._ledger: Ledger | None = None
        if obsolete:
            self.log.info(
                "Ignoring the arguments %s of this trigger: they come from another version of FDS.", sorted(obsolete)
            )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        return (
            "airflow_provider_fds.triggers.stream_decision.StreamDecisionTrigger",
            {
                "stream": self.stream,
                "staging": self.staging,
                "ti_id": self.ti_id,
                "storage_conn_id": self.storage_conn_id,
                "version": self.version,
                "about": self.about,
                "until": self.until,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is a decision, or the time is over."""
        note_start()
        refusals = 0
        while True:
            try:
                async with poll_slot():
                    found = await sync_to_async(self._poll, thread_sensitive=False)()
            except Exception as error:  # noqa: BLE001  # storage or Airflow's API server may be restarting
                refusals += 1
                self.log.warning("Poll %d of stream %s was refused: %s", refusals, self.stream, error)
            else:
                refusals = 0
                if found is not None:
                    yield TriggerEvent(found)  # type: ignore[no-untyped-call]
                    return
            await asyncio.sleep(self._pause_seconds(refusals))

    def _pause_seconds(self, refusals: int) -> float:
        pause = pause_seconds(self.poll_interval, refusals)
        return pause if self.until is None else min(pause, max(0.1, self.until - time.time()))

    def _poll(self) -> dict[str, Any] | None:
        """Look for a decision in the ledger, then in Airflow. Blocks, so it must run in a thread."""
        is_late = self.until is not None and time.time() >= self.until
        try:
            if (decided := self._decided()) is not None:
                self._answer(decided)
                return self._event(decided, in_ledger=True)
            answer = get_hitl_detail_content_detail(ti_id=UUID(self.ti_id))
            if answer.response_received and answer.chosen_options:
                user = answer.responded_by_user
                known = None if user is None else {"id": user.id, "name": user.name}
                return self._event(answer.chosen_options[0], why=answer.params_input, user=known)
        except Exception:
            if not is_late:
                raise
        if is_late:
            self._answer(STOP)
            return self._event(STOP, is_late=True)
        return None

    def _decided(self) -> str | None:
        if self._ledger is None:
            ledger = Ledger(open_folder(self.storage_conn_id, self.staging), self.stream)
            ledger.find()
            self._ledger = ledger
        else:
            self._ledger.refresh()
        if self._ledger.state.phase == "empty":
            self._ledger = None
            raise StorageError(f"staging {self.staging} has no stream {self.stream!r}: is it mounted here?")
        return decision_on(self._ledger.state, self.version, self.about)

    def _event(
        self,
        choice: str,
        *,
        why: dict[str, Any] | None = None,
        user: dict[str, str] | None = None,
        is_late: bool = False,
        in_ledger: bool = False,
    ) -> dict[str, Any]:
        return {
            "chosen_options": [choice.capitalize()],
            "params_input": dict(why or {}),
            "responded_by_user": user,
            "timedout": is_late,
            "in_ledger": in_ledger,
            "version": self.version,
            "about": self.about,
        }

    def _answer(self, name: str) -> None:
        """Answer the question in Airflow, unless a person does so at this moment: the ledger has the first word."""
        try:
            update_hitl_detail_response(ti_id=UUID(self.ti_id), chosen_options=[name.capitalize()], params_input={})
        except Exception as error:  # noqa: BLE001  # the answer that counts is known
            self.log.info("The question about stream %s was not closed: %s", self.stream, error)
