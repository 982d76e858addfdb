"""Facets of OpenLineage for what a task has read and written. Imports OpenLineage only within functions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_fds.hooks.lineage import dataset_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.operators.lineage.lineage_values import Lineage, TableUse

#: Fields of FDS's own facets, by the facet's key. ``docs/lineage.md`` has the same table; a test compares the two.
STREAM_FIELDS: Final = ("stream", "uuid", "read", "sink", "delivery")
BATCHES_FIELDS: Final = (
    "stream",
    "epoch",
    "batches",
    "first_batch_id",
    "last_batch_id",
    "start",
    "end",
    "interval_start",
    "interval_end",
    "generation",
)
VERSIONS_FIELDS: Final = ("first_version", "last_version")


def operator_lineage(found: Lineage) -> Any:
    """Return the provider's ``OperatorLineage``."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import JobFacet, RunFacet

    source, result = dataset_name(found.source.uri), found.result
    outputs = []
    for table in found.sinks:
        name = dataset_name(table.uri)
        facets = {**_table_facets(table), **_column_lineage(found, table)}
        statistics = _output_statistics(found) if len(found.sinks) == 1 else {}
        outputs.append(OutputDataset(name.namespace, name.name, facets=facets, outputFacets=statistics))
    sink = found.sink
    stream = {
        "stream": found.stream.name,
        "uuid": found.uuid,
        "read": found.stream.read,
        "sink": None if sink is None else sink.kind,
        "delivery": None if sink is None else sink.delivery,
    }
    return OperatorLineage(
        inputs=[
            InputDataset(
                source.namespace, source.name, facets=_table_facets(found.source), inputFacets=_input_facets(result)
            )
        ],
        outputs=outputs,
        job_facets={"fds_stream": _own("FdsStreamJobFacet", JobFacet, STREAM_FIELDS, stream)},
        run_facets={"fds_batches": _own("FdsBatchesRunFacet", RunFacet, BATCHES_FIELDS, result)} if result else {},
    )


def fleet_lineage(found: Iterable[Lineage]) -> Any:
    """Return the provider's ``OperatorLineage`` for many streams: their sources and sinks, each table once."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    each = [operator_lineage(one) for one in found]
    return OperatorLineage(
        inputs=_once([one for lineage in each for one in lineage.inputs], "inputFacets"),
        outputs=_once([one for lineage in each for one in lineage.outputs], "outputFacets"),
    )


def _once(datasets: list[Any], statistics: str) -> list[Any]:
    """Return each dataset once, at its newest version; statistics of one stream alone would be wrong for a table."""
    import attr

    found: dict[tuple[str, str], Any] = {}
    for one in datasets:
        place = one.namespace, one.name
        if place not in found:
            found[place] = one
            continue
        newest = max(found[place], one, key=_version_of)
        is_from_one = not (getattr(found[place], statistics) and getattr(one, statistics))
        either = getattr(found[place], statistics) or getattr(one, statistics)
        found[place] = attr.evolve(newest, **{statistics: either if is_from_one else {}})
    return list(found.values())


def _version_of(dataset: Any) -> int:
    version = dataset.facets.get("version")
    return -1 if version is None else int(version.datasetVersion)


def _own(name: str, base: type, fields: tuple[str, ...], values: Mapping[str, Any]) -> Any:
    """Return a facet of FDS; unknown values are left out of the event."""
    return _facet_class(name, base, fields)(**{field: values.get(field) for field in fields})


@lru_cache
def _facet_class(name: str, base: type, fields: tuple[str, ...]) -> Any:
    import attr

    # made here, because a class statement would need OpenLineage when the module is imported
    return attr.make_class(name, {field: attr.ib(default=None) for field in fields}, bases=(base,))


def _table_facets(table: TableUse) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset, symlinks_dataset

    facets: dict[str, Any] = {}
    if table.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(table.version))
    if table.metadata is not None:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=_fields(_columns(table.metadata)))
    named = []
    if table.metadata is not None and table.metadata.name:
        named.append(symlinks_dataset.Identifier(dataset_name(table.uri).namespace, table.metadata.name, "TABLE"))
    if table.alias is not None:
        named.append(symlinks_dataset.Identifier(*dataset_name(table.alias), "LOCATION"))
    if named:
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=named)
    return facets


def _input_facets(result: Mapping[str, Any]) -> dict[str, Any]:
    if not result:
        return {}
    from openlineage.client.facet_v2 import InputDatasetFacet, input_statistics_input_dataset

    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=result.get("rows_read"), size=result.get("bytes"), fileCount=result.get("files")
    )
    versions = _own("FdsVersionsInputDatasetFacet", InputDatasetFacet, VERSIONS_FIELDS, result)
    return {"inputStatistics": statistics, "fds_versions": versions}


def _output_statistics(found: Lineage) -> dict[str, Any]:
    result = found.result
    if not result or result.get("rows") is None:
        return {}
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=result["rows"], size=result.get("bytes_written"), fileCount=result.get("files_written")
    )
    return {"outputStatistics": statistics}


def _column_lineage(found: Lineage, table: TableUse) -> dict[str, Any]:
    """Return which column of the source each column of the sink is a copy of, if the sink copies columns."""
    source = found.source
    if not found.maps_columns or source.metadata is None or table.metadata is None:
        return {}
    from openlineage.client.facet_v2 import column_lineage_dataset

    name = dataset_name(source.uri)
    # Spark resolves names without regard to case
    columns = {column["name"].lower(): column["name"] for column in _columns(source.metadata)}
    chosen = {column.lower() for column in getattr(found.sink, "columns", ())} or columns.keys()
    fields = {
        column["name"]: column_lineage_dataset.Fields(
            inputFields=[
                column_lineage_dataset.InputField(
                    name.namespace,
                    name.name,
                    columns[column["name"].lower()],
                    transformations=[column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")],
                )
            ]
        )
        for column in _columns(table.metadata)
        if column["name"].lower() in columns and column["name"].lower() in chosen
    }
    return {"columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)} if fields else {}


def _columns(metadata: Metadata) -> list[dict[str, Any]]:
    if not metadata.schemaString:
        return []
    columns: list[dict[str, Any]] = msgspec.json.decode(metadata.schemaString)["fields"]
    return columns


def _fields(columns: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return columns as OpenLineage describes them; types are Delta's, nested ones as the Spark agent shows them."""
    from openlineage.client.facet_v2 import schema_dataset

    return [
        schema_dataset.SchemaDatasetFacetFields(
            name=column["name"],
            type=_type_name(column["type"]),
            description=(column.get("metadata") or {}).get("comment"),
            fields=_fields(_inner(column["type"])),
        )
        for column in columns
    ]


def _type_name(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, dict) else kind)


def _inner(kind: Any) -> list[dict[str, Any]]:
    """Return the fields within a nested type."""
    if not isinstance(kind, dict):
        return []
    if kind["type"] == "array":
        return [{"name": "_element", "type": kind["elementType"]}]
    if kind["type"] == "map":
        return [{"name": "key", "type": kind["keyType"]}, {"name": "value", "type": kind["valueType"]}]
    return list(kind.get("fields", ()))
