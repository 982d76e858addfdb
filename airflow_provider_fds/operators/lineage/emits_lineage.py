"""The methods of an operator that Airflow's OpenLineage provider calls."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.operators.lineage.lineage_values import Lineage
    from airflow_provider_fds.sinks import Sink


class EmitsLineage:
    """The methods that Airflow's OpenLineage provider looks for in an operator."""

    _lineage: Lineage | None = None

    def get_openlineage_facets_on_start(self) -> Any:
        """Return source and sink by name; nothing is read before the task runs."""
        from airflow_provider_fds.operators.lineage.lineage_facets import operator_lineage
        from airflow_provider_fds.operators.lineage.lineage_values import Lineage

        return operator_lineage(Lineage.planned(*self._lineage_ends()))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002  # the provider's signature
        """Return source and sink with versions, schemas and row counts of what the task has committed."""
        from airflow_provider_fds.operators.lineage.lineage_facets import operator_lineage
        from airflow_provider_fds.operators.lineage.lineage_values import Lineage

        return operator_lineage(self._lineage or Lineage.planned(*self._lineage_ends()))

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return the same for the batches that were committed before the task failed."""
        return self.get_openlineage_facets_on_complete(task_instance)

    def _lineage_ends(self) -> tuple[DeltaStream, Sink | None]:
        """Return the stream and its sink, as rendered."""
        operator: Any = self
        return DeltaStream.coerce(operator.stream), coerce_sink(operator.sink)


class EmitsFleetLineage:
    """The same methods for a task of many streams: each source is an input, each sink an output.

    Attributes:
        lineages: The lineage of each stream of the run, by name; empty before the run.
    """

    lineages: Mapping[str, Lineage] = MappingProxyType({})

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the sources and sinks of the declared streams by name."""
        from airflow_provider_fds.fleet.value import FleetStream
        from airflow_provider_fds.operators.lineage.lineage_facets import fleet_lineage
        from airflow_provider_fds.operators.lineage.lineage_values import Lineage

        operator: Any = self
        return fleet_lineage(Lineage.planned(one.stream, one.sink) for one in map(FleetStream.coerce, operator.streams))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002  # the provider's signature
        """Return all sources and sinks of the run, with versions, schemas and row counts of what was committed."""
        from airflow_provider_fds.operators.lineage.lineage_facets import fleet_lineage

        return fleet_lineage(self.lineages.values()) if self.lineages else self.get_openlineage_facets_on_start()

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return the same for what was committed before the task failed."""
        return self.get_openlineage_facets_on_complete(task_instance)
