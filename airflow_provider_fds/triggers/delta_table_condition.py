"""``DeltaTableConditionTrigger``: wait for a version or for new data of a Delta table, without a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.hooks.places import TableAddress
from airflow_provider_fds.stream.polling.table_condition import ConditionPoller, TableCondition
from airflow_provider_fds.triggers.delta_table_version import DeltaTableVersionTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping


class DeltaTableConditionTrigger(DeltaTableVersionTrigger):
    """Fires once, when a condition on the commits of a table holds.

    Polls, events and the handling of refused polls are the same as in :class:`DeltaTableVersionTrigger`. There is no
    stream, so nothing is read from staging or from a checkpoint. A table that does not exist yet is waited for. The
    trigger writes nothing.

    Args:
        table: URI of the table, or its name.
        storage_conn_id: Connection for the table; ``None`` for the environment's credentials.
        catalog_conn_id: Connection of the catalog that has the name; ``None``: the table is a URI.
        condition: What to wait for, as returned by :meth:`TableCondition.to_dict`.
        arguments: ``poll_interval``, ``recheck_every`` and ``max_refusals`` of :class:`DeltaTableVersionTrigger`.
    """

    def __init__(
        self,
        *,
        table: str,
        storage_conn_id: str | None = None,
        catalog_conn_id: str | None = None,
        condition: Mapping[str, Any],
        **arguments: Any,
    ) -> None:
        # the base class names both in its messages
        super().__init__(stream={"table": table, "storage_conn_id": storage_conn_id}, **arguments)
        self.address = TableAddress(table, storage_conn_id, catalog_conn_id)
        self.condition = dict(condition)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        _, arguments = super().serialize()
        for name in ("stream", "staging", "deployment"):
            del arguments[name]
        return (
            "airflow_provider_fds.triggers.delta_table_condition.DeltaTableConditionTrigger",
            {
                **arguments,
                **{name: value for name, value in self.address._asdict().items() if value is not None},
                "condition": self.condition,
            },
        )

    @property
    def _address(self) -> TableAddress:
        return self.address

    def _poller(self) -> tuple[ConditionPoller | None, None]:
        try:
            storage = self.address.open()
        except TableNotFoundError as error:
            # a name that its catalog does not have; without a poller, the next poll asks again
            self.log.info("Waiting for the table: %s.", error)
            return None, None
        return ConditionPoller(storage, TableCondition.from_dict(self.condition)), None

    def _send_status(self, poller: Any = None) -> None:
        """There is no stream, so there are no metrics."""

    def _count_error(self) -> None:
        """Likewise."""
