"""Requests by the ledger's words for them, two of which are forms of another action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction

FORMS: Final = {"reset": ("rewind", {"to": "start"}), "rebind": ("replan", {"new_sink": True})}


def requested(builder: ActionBuilder, word: str, **given: Any) -> PreparedAction:
    """Prepare an action by the ledger's word for it; a rewind goes to version 0 unless it is told where."""
    name, form = FORMS.get(word, (word, {"to": 0} if word == "rewind" else {}))
    prepared: PreparedAction = getattr(builder, name)(**{**form, **given})
    return prepared
