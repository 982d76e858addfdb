"""What a commit may change about the table itself while a stream reads it: schema, protocol and identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.log import TableState
from airflow_provider_fds.delta.protocol import check_readable
from airflow_provider_fds.errors import SchemaChangedError, StoppedError, TableReplacedError

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata, Protocol
    from airflow_provider_fds.source.classify import CommitContent


def state_after(
    before: TableState | None,
    content: CommitContent,
    *,
    table: str,
    table_id: str,
    comparable: bool = True,
    acknowledged: bool = False,
) -> tuple[TableState, bool]:
    """Return the state in force after a commit and whether it has another schema, or refuse to pass the commit.

    An added column, relaxed nullability and similar changes take effect; properties and comments do not matter.

    Args:
        before: State before the commit; ``None`` before the first version of a table.
        content: The commit.
        table: URI of the table, for messages.
        table_id: ``metaData.id`` that the stream reads.
        comparable: Whether ``before`` really was in force before the commit, so that schemas can be compared.
        acknowledged: Whether a person lets the stream pass a schema change that is more than an addition.

    Raises:
        TableReplacedError: The commit makes it another table.
        SchemaChangedError: The schema changes by more than an addition.
        UnsupportedFeatureError: From this commit on, the table needs a reader feature that FDS does not support.
        StoppedError: The first version of a table lacks protocol or metadata.
    """
    if content.metadata is None and content.protocol is None and before is not None:
        return before, False
    version = content.version
    protocol = content.protocol or (before.protocol if before else None)
    metadata = content.metadata or (before.metadata if before else None)
    if protocol is None or metadata is None:
        raise StoppedError(
            f"{table}: version {version} is the first of the table and holds no "
            f"{'protocol' if protocol is None else 'metaData'} action, which the Delta protocol demands. The commit "
            "file is damaged or was not written by a Delta writer.",
            table=table,
            version=version,
        )
    check_readable(protocol, table=table, version=version, metadata=metadata)
    if metadata.id != table_id:
        raise TableReplacedError(
            f"{table}: version {version} gives the table the id {metadata.id}; this stream reads the table with id "
            f"{table_id}. It became another table. Start a new stream for it.",
            table=table,
            version=version,
        )
    state = TableState(version, protocol, metadata)
    if before is None or content.metadata is None or not comparable or before.metadata == metadata:
        return state, False
    return state, _has_new_schema(
        before.metadata, metadata, protocol, table=table, version=version, acknowledged=acknowledged
    )


def _has_new_schema(
    old: Metadata, new: Metadata, protocol: Protocol, *, table: str, version: int, acknowledged: bool
) -> bool:
    from airflow_provider_fds.delta.schema import schema_change

    change = schema_change(old, new, protocol)
    if change.kind == "breaking" and not acknowledged:
        details = "; ".join(change.details)
        raise SchemaChangedError(
            f"{table}: version {version} changes the schema by more than an addition: {details}. Rows from before and "
            f"after it cannot be read with one schema, so the stream stops before version {version}; everything "
            "before it is delivered. Bring the sink to the new schema, then "
            f"let the stream continue with acknowledged_schema={version} on the stream, or with `fds acknowledge "
            f"STREAM --version {version} --why …`.",
            table=table,
            version=version,
        )
    return change.kind != "none"
