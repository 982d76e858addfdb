from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.actions import Add, DeletionVector, Metadata, Protocol
from airflow_provider_fds.delta.reader.log import TableState
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planned import PlannedFile, SourceBatch

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE_ID = "5fba94ed-9794-4965-ba6e-6ee3c0d22af9"
NOON_MS = 1_767_268_800_123  # 2026-01-01T12:00:00.123Z


@pytest.fixture
def metadata() -> Callable[..., Metadata]:
    """Build ``metaData`` from fields given as (name, type) or as whole schema fields."""

    def build(*fields: Any, partition_columns: tuple[str, ...] = (), **configuration: str) -> Metadata:
        schema = [
            {"name": f[0], "type": f[1], "nullable": True, "metadata": {}} if isinstance(f, tuple) else f
            for f in fields or (("id", "long"),)
        ]
        return Metadata(
            id=TABLE_ID,
            schemaString=json.dumps({"type": "struct", "fields": schema}),
            partitionColumns=partition_columns,
            configuration={k.replace("__", "."): v for k, v in configuration.items()},
        )

    return build


@pytest.fixture
def batch(metadata: Callable[..., Metadata]) -> Callable[..., SourceBatch]:
    """Build a batch of adds; each is one version, a second apart, unless given as (version, add)."""

    def build(
        *adds: Add | tuple[int, Add], protocol: Protocol | None = None, state: Metadata | None = None
    ) -> SourceBatch:
        listed = [a if isinstance(a, tuple) else (7 + i, a) for i, a in enumerate(adds)]
        files = tuple(
            PlannedFile(version=v, index=i, timestamp_ms=NOON_MS + 1000 * (v - 7), add=add)
            for i, (v, add) in enumerate(listed)
        )
        last = listed[-1][0] if listed else 7
        return SourceBatch(
            start=Offset(TABLE_ID, 7),
            end=Offset(TABLE_ID, last + 1),
            files=files,
            state=TableState(version=last, protocol=protocol or Protocol(1, 2), metadata=state or metadata()),
            skipped=(),
            first_version=7,
            last_version=last,
            log_digest="0" * 64,
            last_commit_sha256="0" * 64,
        )

    return build


@pytest.fixture
def vector() -> DeletionVector:
    """The protocol's own example of a deletion vector file with a random prefix, ``ab``."""
    return DeletionVector(
        storageType="u", pathOrInlineDv="ab^-aqEH.-t@S}K{vb[*k^", sizeInBytes=40, cardinality=6, offset=4
    )
