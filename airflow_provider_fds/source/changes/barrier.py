"""What stops a stream at a commit: a change of the table itself, or an operation that the options do not let pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.protocol import check_readable
from airflow_provider_fds.delta.reader.log import TableState
from airflow_provider_fds.delta.schema import check_schema, schema_change
from airflow_provider_fds.errors import SchemaChangedError, StoppedError, TableReplacedError
from airflow_provider_fds.source.changes.change_recording import is_enabled, not_recorded
from airflow_provider_fds.source.changes.classify import LOAD_ANEW, Skip, Stop, classify
from airflow_provider_fds.source.options.schema_policy import OPTION, SchemaPolicy
from airflow_provider_fds.source.planned import PassedSchemaChange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.schema import SchemaChange
    from airflow_provider_fds.source.changes.classify import CommitContent, Emit
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.options.schema_policy import AppliedRule, Rules


@dataclass(frozen=True, slots=True)
class Allowances:
    """What lets a stream pass versions besides its own options.

    Attributes:
        accepted: Versions whose schema change a person lets take effect although the options do not, each with that
            person's reason.
        left_out: Versions that a person skipped, likewise: none of their rows is read.
        refused: Versions whose rows an older decision omits if the options refuse them, likewise.
        schema_changes: Rules of the installation for kinds of schema change; those of the stream take precedence.
    """

    accepted: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, str] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    schema_changes: Rules = ()


NO_ALLOWANCES: Final = Allowances()


class Barrier:
    """Lets a commit pass or refuses it, by the options and by what people have said about single versions.

    Args:
        options: The stream's options.
        table: URI of the table, for messages.
        table_id: ``metaData.id`` that the stream reads.
        allowances: What lets the stream pass versions besides its options.
        catalog_table_id: The id of the table in the catalog that shows its log; ``None``: the log is read as it is.
    """

    def __init__(
        self,
        options: SourceOptions,
        table: str,
        table_id: str,
        allowances: Allowances = NO_ALLOWANCES,
        *,
        catalog_table_id: str | None = None,
    ) -> None:
        self.allowances = allowances
        self._options = options
        self._table = table
        self._table_id = table_id
        self._catalog_table_id = catalog_table_id
        self._policy = SchemaPolicy(options.on_schema_change, allowances.schema_changes)

    def state_after(
        self, before: TableState | None, content: CommitContent, *, comparable: bool = True
    ) -> tuple[TableState, PassedSchemaChange | None]:
        """Return the state in force after a commit and the change of its schema, or refuse to pass the commit.

        Properties and comments of a table are no change of its schema.

        Args:
            before: State before the commit; ``None`` before the first version of a table.
            content: The commit.
            comparable: Whether ``before`` really was in force before the commit, so that schemas can be compared.

        Raises:
            TableReplacedError: The commit makes it another table.
            SchemaChangedError: The schema changes, and neither a rule nor a person lets the stream pass the change.
            UnsupportedFeatureError: From this commit on, the table needs a reader feature that FDS does not support.
            StoppedError: The first version of a table lacks protocol or metadata, or a schema is damaged.
        """
        if content.metadata is None and content.protocol is None and before is not None:
            return before, None
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
        check_readable(
            protocol, table=table, version=version, metadata=metadata, catalog_table_id=self._catalog_table_id
        )
        if metadata.id != self._table_id:
            raise TableReplacedError(
                f"{table}: version {version} changes the id of the table to {metadata.id}, but this stream reads "
                f"the table with id {self._table_id}. It is a different table now. Start a new stream for it; "
                "`fds retire STREAM --why …` ends this one.",
                table=table,
                version=version,
            )
        state = TableState(version, protocol, metadata)
        passed: PassedSchemaChange | None = None
        if before is not None and content.metadata is not None and comparable and before.metadata != metadata:
            passed = self._passed(before.metadata, state, content)
        if content.metadata is not None:
            self.check_schema(state, version)
        return state, passed

    def _passed(self, old: Metadata, state: TableState, content: CommitContent) -> PassedSchemaChange | None:
        version = content.version
        change = schema_change(old, state.metadata, state.protocol)
        if not change.columns:
            return None
        self._check_types(change, content)
        verdict = self._policy.judge(
            change,
            version,
            accepted_schema_version=self._options.accepted_schema_version,
            accepted=self.allowances.accepted.get(version),
        )
        if verdict.refused:
            raise self._refusal(change, verdict.refused, content)
        return PassedSchemaChange(version, change.diff, verdict.allowed_by)

    def _check_types(self, change: SchemaChange, content: CommitContent) -> None:
        """Refuse a commit whose removed rows, which the change feed reads, have types other than the added ones."""
        version, table, options = content.version, self._table, self._options
        if not options.read_change_feed or not content.removes or content.change_files:
            return
        if version in self.allowances.left_out or options.skips_version(version):
            return
        read = {name.lower() for name in options.columns}
        columns = [
            one.unreadable
            for one in change.columns
            if one.unreadable and (not read or one.unreadable.partition(".")[0].lower() in read)
        ]
        if not columns:
            return
        diff = "".join(f"\n  {line}" for line in change.diff)
        error = SchemaChangedError(
            f"{table}: version {version} overwrites the table with other types:{diff}\nThe change feed has the removed "
            f"rows, too, and no batch can hold both: their files have the old type of {', '.join(columns)}. The stream "
            f"stops before version {version}; everything before it is delivered.\nLoad the table as it is now: remove "
            "the start options from the stream, use another sink (`fds replan STREAM --new-sink --why …`), then run "
            "`fds rewind STREAM --to start --replace --sink-rows keep --why …`.",
            table=table,
            version=version,
            operation=content.operation_text,
        )
        error.way_on = None
        raise error

    def _refusal(
        self, change: SchemaChange, refused: tuple[AppliedRule, ...], content: CommitContent
    ) -> SchemaChangedError:
        version, table = content.version, self._table
        diff = "".join(f"\n  {line}" for line in change.diff)
        rules = ", ".join(one.describe() for one in refused if one.kind != "other")
        elsewhere = (
            "\nWhere a column of the sink cannot take the new type, use another sink: after the schema, run "
            "`fds replan STREAM --new-sink --why …`."
        )
        message = (
            f"{table}: version {version} changes the schema:{diff}\nThe stream stops before version {version}"
            f"{f' ({rules})' if rules else ''}; everything before it is delivered.\nChange the sink to the new schema, "
            f"then let the stream pass with {_ways_on(refused, version)}."
            f"{elsewhere if any(one.kind == 'type' for one in refused) else ''}"
        )
        if isinstance(classify(content, self._options, table=table), Stop):
            message += (
                f"\nThis commit also changes data ({content.describe_changes}), which the options do not let pass "
                f"either: after the schema, `fds skip STREAM --version {version} --why …` continues without its rows; "
                f"{LOAD_ANEW}."
            )
        return SchemaChangedError(message, table=table, version=version, operation=content.operation_text)

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
        if content.version in self.allowances.left_out:
            return Skip(f"{self.allowances.left_out[content.version]}; {content.describe_changes}")
        verdict = classify(content, self._options, table=self._table)
        if not isinstance(verdict, Stop):
            return verdict
        if content.version not in self.allowances.refused:
            raise verdict.error
        return Skip(f"{self.allowances.refused[content.version]}; {content.describe_changes}")

    def check_recorded(self, state: TableState | None, version: int) -> None:
        """Stop before a version at which changes are not recorded, unless it is skipped anyway."""
        if state is not None and not is_enabled(state.metadata) and not self._options.skips_version(version):
            raise not_recorded(version, table=self._table)


def _ways_on(refused: tuple[AppliedRule, ...], version: int) -> str:
    """Return what lets the stream pass ``version``."""
    command = f"`fds accept STREAM --version {version} --why …`"
    option = f"accepted_schema_version={version} on the stream"
    if any(one.rule == "fail" for one in refused):
        return f"{command}, or with another rule in {OPTION}; {option} is not enough where a rule is 'fail'"
    if any(one.kind in ("type", "other") for one in refused):
        return f"{command} or {option}; no {OPTION} follows such a change by itself"
    follow = {one.kind: "follow" for one in refused}
    return f"{command}, with {option}, or with {OPTION}={follow}, which follows every such change"
