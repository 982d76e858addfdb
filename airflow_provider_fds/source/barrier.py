"""What stops a stream at a commit: a change of the table itself, or an operation that the options do not let pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.log import TableState
from airflow_provider_fds.delta.protocol import check_readable
from airflow_provider_fds.delta.schema import check_schema, schema_change
from airflow_provider_fds.errors import SchemaChangedError, StoppedError, TableReplacedError
from airflow_provider_fds.source.change_recording import is_enabled, not_recorded
from airflow_provider_fds.source.classify import Skip, Stop, classify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.source.classify import CommitContent, Emit
    from airflow_provider_fds.source.options import SourceOptions


class Barrier:
    """Lets a commit pass or refuses it, by the options and by what people have said about single versions.

    Args:
        options: The stream's options.
        table: URI of the table, for messages.
        table_id: ``metaData.id`` that the stream reads.
        acknowledged: Versions that a person lets the stream pass although the options do not, each with that person's
            reason: a schema change takes effect there, any other commit is skipped as a whole.
        left_out: Versions that a person skipped, likewise; skipped as a whole even if they could be read.
    """

    def __init__(
        self,
        options: SourceOptions,
        table: str,
        table_id: str,
        acknowledged: Mapping[int, str],
        left_out: Mapping[int, str],
    ) -> None:
        self.acknowledged = acknowledged
        self.left_out = left_out
        self._options = options
        self._table = table
        self._table_id = table_id
        self._acknowledged_schema = -1 if options.acknowledged_schema is None else options.acknowledged_schema

    def state_after(
        self, before: TableState | None, content: CommitContent, *, comparable: bool = True
    ) -> tuple[TableState, bool]:
        """Return the state in force after a commit and whether it has another schema, or refuse to pass the commit.

        An added column, relaxed nullability and similar changes take effect; properties and comments do not matter.

        Args:
            before: State before the commit; ``None`` before the first version of a table.
            content: The commit.
            comparable: Whether ``before`` really was in force before the commit, so that schemas can be compared.

        Raises:
            TableReplacedError: The commit makes it another table.
            SchemaChangedError: The schema changes by more than an addition, and no person lets the stream pass it.
            UnsupportedFeatureError: From this commit on, the table needs a reader feature that FDS does not support.
            StoppedError: The first version of a table lacks protocol or metadata, or a schema is damaged.
        """
        if content.metadata is None and content.protocol is None and before is not None:
            return before, False
        version, table = content.version, self._table
        protocol = content.protocol or (before.protocol if before else None)
        metadata = content.metadata or (before.metadata if before else None)
        if protocol is None or metadata is None:
            raise StoppedError(
                f"{table}: version {version} is the first version of the table but has no "
                f"{'protocol' if protocol is None else 'metaData'} action, which the Delta protocol requires. The "
                "commit file is damaged or was not written by a Delta writer.",
                table=table,
                version=version,
            )
        check_readable(protocol, table=table, version=version, metadata=metadata)
        if metadata.id != self._table_id:
            raise TableReplacedError(
                f"{table}: version {version} changes the id of the table to {metadata.id}, but this stream reads "
                f"the table with id {self._table_id}. It is a different table now. Start a new stream for it.",
                table=table,
                version=version,
            )
        state = TableState(version, protocol, metadata)
        has_new_schema = False
        if before is not None and content.metadata is not None and comparable and before.metadata != metadata:
            has_new_schema = self._has_new_schema(before.metadata, state, content)
        if content.metadata is not None:
            self.check_schema(state, version)
        return state, has_new_schema

    def _has_new_schema(self, old: Metadata, state: TableState, content: CommitContent) -> bool:
        version, table = content.version, self._table
        change = schema_change(old, state.metadata, state.protocol)
        is_acknowledged = version <= self._acknowledged_schema or version in self.acknowledged
        if change.kind != "breaking" or is_acknowledged:
            return change.kind != "none"
        details = "; ".join(change.details)
        message = (
            f"{table}: version {version} changes the schema by more than an addition: {details}. Rows from before "
            f"and after it cannot be read with one schema, so the stream stops before version {version}; "
            "everything before it is delivered. Change the sink to the new schema, then let the stream continue "
            f"with acknowledged_schema={version} on the stream, or with `fds acknowledge STREAM --version "
            f"{version} --why …`."
        )
        if isinstance(classify(content, self._options, table=table), Stop):
            # one acknowledgement skips all of the commit, with its rows
            message += (
                f" This commit also changes data ({content.describe_changes}), which the options do not let pass "
                "either. `fds acknowledge` skips all of it, including its rows; acknowledged_schema lets only the "
                "schema pass, and the stream then lists the options for the rows."
            )
        raise SchemaChangedError(message, table=table, version=version, operation=content.operation_text)

    def check_schema(self, state: TableState, version: int) -> None:
        """Refuse a schema that cannot be read at all."""
        try:
            check_schema(state.metadata)
        except ValueError as error:
            raise StoppedError(
                f"{self._table}: the metaData action that applies to version {version} is damaged: {error}. The "
                f"stream stops before version {version}; everything before it is delivered. Restore the commit or "
                "checkpoint that contains the action",
                table=self._table,
                version=version,
            ) from error

    def judge(self, content: CommitContent) -> Emit | Skip:
        """Return what happens with the commit, or raise the error that stops the stream."""
        if content.version in self.left_out:
            return Skip(f"{self.left_out[content.version]}; {content.describe_changes}")
        verdict = classify(content, self._options, table=self._table)
        if not isinstance(verdict, Stop):
            return verdict
        if content.version not in self.acknowledged:
            raise verdict.error
        return Skip(f"{self.acknowledged[content.version]}; {content.describe_changes}")

    def check_recorded(self, state: TableState | None, version: int) -> None:
        """Stop before a version at which changes are not recorded, unless it is skipped anyway."""
        if state is not None and not is_enabled(state.metadata) and not self._options.skips_version(version):
            raise not_recorded(version, table=self._table)
