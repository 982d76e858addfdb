"""What a user's function has written of planned batches, according to its reports, its tables' logs, or a person.

A function may write several tables. A batch has landed if all its writes have landed, and has not if none has. If only
some have landed, the batch must be finished: a new epoch would load those writes again or lose the others.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.table_writes import TableWrite
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.errors import ConfigurationError, FdsError, LedgerError
from airflow_provider_fds.ledger.rewind_options import target_from
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.attempt.batch_versions import describe_versions
from airflow_provider_fds.stream.attempt.reports import reports_about
from airflow_provider_fds.stream.epochs.sink_before import UNKNOWN_VERSION
from airflow_provider_fds.stream.epochs.tables_before import as_seen, is_read_again
from airflow_provider_fds.stream.sink_record.function_tables import read_tables, tables_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.table_writes import TableWrites
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SeenBatch, SinkBinding


class FunctionWrites:
    """The planned batches of a function and what is known of their writes; each table is read once.

    Args:
        ledger: The stream's ledger, read to its head.
        open_table: Opens the folder of a table, or ``None`` if tables cannot be reached from here.
    """

    def __init__(self, ledger: Ledger, open_table: Callable[[str], Storage] | None) -> None:
        state = ledger.state
        self._ledger = ledger
        self._open = open_table
        self._state = state
        self._name = state.name
        self._sink = _function_of(state)
        self._epoch = state.epoch if state.closed is None else state.closed.epoch
        self._planned = state.planned if state.closed is None else state.closed.planned

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the function's writes."""
        return () if self._sink is None else tuple(app_id.partition("#")[2] for app_id in self._sink.app_ids)

    @property
    def _tables(self) -> dict[str, str]:
        return {} if self._sink is None else tables_in_order(self._sink)

    @cached_property
    def table_writes(self) -> dict[str, TableWrites]:
        """What each named and readable table has after the last commit, by the write's name."""
        return {} if self._open is None else read_tables(self._state, self._open, (FdsError,))

    @property
    def seen(self) -> tuple[SeenBatch, ...]:
        """The uncommitted writes that :meth:`repeated_notes` tells the person of, as a request records them."""
        told, _ = self._uncommitted
        return tuple(self._as_seen(name, write) for name, writes in told.items() for write in writes)

    @property
    def table_versions(self) -> dict[str, int]:
        """Version of each table with an uncommitted write: as it was read here, or as the driver reported it."""
        read = {
            name: found.version
            for name, found in self.table_writes.items()
            if any(not write.is_fence for write in found.writes)
        }
        told = [report.tables for reports in self._done for report in reports]
        return {name: max(of[name] for of in told if name in of) for of in told for name in of} | read

    @cached_property
    def _done(self) -> list[list[AttemptReport]]:
        """For each planned batch, the reports that the function has returned from it."""
        return [
            [report for report in reports_about(self._ledger, self._epoch, batch) if report.is_done]
            for batch in self._planned
        ]

    @property
    def newest_epoch(self) -> int:
        """Newest epoch with a transaction in a table after the last commit, or 0."""
        return max((write.epoch for found in self.table_writes.values() for write in found.writes), default=0)

    def end_of_landed(self, landed: bool | Mapping[str, bool] | None) -> str | None:
        """Return where a new epoch continues, or ``None`` for the committed position.

        A table's log decides for its write; the driver's report counts only for a write whose table cannot be read.

        Args:
            landed: A person's answer for the planned batch: for all its writes, or by name. ``None``: rely on tables
                and reports only.

        Raises:
            ConfigurationError: It is unknown whether a write landed, or an answer names an unknown write or contradicts
                what is known.
            BatchRejectedError: A file among the batch's reports is not a report.
            LedgerError: Some writes of the batch have landed and others have not; or a table has batches that the
                ledger does not know.
        """
        self._refuse_unknown()
        if not self._planned:
            return None
        reported = [bool(reports) for reports in self._done]
        known = self._landed_by_evidence(reported, is_answered=landed is not None)
        end = self._planned[known - 1].end if known else None
        if known == len(self._planned):
            if landed is not None and not (landed if isinstance(landed, bool) else all(landed.values())):
                raise ConfigurationError(
                    f"stream {self._name!r}: according to tables and reports, all planned batches have landed, up "
                    f"to version {self._planned[-1].last_version}. To load them again, rewind the stream",
                    reason=Reason.ACTION_REFUSED,
                )
            return end
        touched = [n for n, batch in enumerate(self._planned) if reported[n] or self._has_traces(batch)]
        last = max([known, *touched])
        batches, has_returned = self._planned[known : last + 1], all(reported[known : last + 1])
        answers = self._answers(batches, landed, has_returned=has_returned)
        if all(answers.values()) and (answers or landed is True):
            return batches[-1].end
        if any(answers.values()):
            raise self._half_landed(batches, answers, can_finish=not any(reported[known : last + 1]))
        return end

    def loaded_note(self, end: str | None) -> str:
        """Return a note on which of the planned batches count as loaded if a new epoch continues at ``end``."""
        ends = [batch.end for batch in self._planned]
        if end not in ends:
            return f"None of the {len(ends)} planned batches counts as loaded; their rows are loaded by the new epoch."
        last = self._planned[ends.index(end)]
        first = self._planned[0]
        which = f"batch {first.batch_id}" if first is last else f"batches {first.batch_id} to {last.batch_id}"
        return f"Counted as loaded, and not loaded again: {which}, up to version {last.last_version}."

    def repeated_notes(self) -> tuple[str, ...]:
        """Return notes on uncommitted rows that a rewind would load again."""
        told, later = self._uncommitted
        notes = []
        if told:
            notes.append(
                f"Not committed, but in the function's tables: {_listed(told)}. Their rows are read again; remove "
                "them, or they are duplicated."
            )
        if later:
            notes.append(
                f"Written after an earlier request: {_listed(later)}. The next run reports these writes and does "
                "not begin the epoch."
            )
        if unknown := self._unknown():
            which = ", ".join(sorted({f"batch {write.batch_id} of epoch {write.epoch}" for _, write in unknown}))
            notes.append(f"Also, the ledger does not know {which}: it may have been restored from an older copy.")
        if unread := self._unread:
            notes.append(
                f"The table of {_names(unread)} cannot be read from here. If it has other uncommitted rows, the "
                "next run reports them and does not begin the epoch."
            )
        unnamed = [name for name in self.names if self._sink is not None and name not in self._sink.tables]
        if self._planned and unnamed:
            notes.append(f"If {_names(unnamed)} has rows of the planned batches, they are loaded again.")
        return tuple(notes)

    @property
    def _unread(self) -> tuple[str, ...]:
        return tuple(name for name in self._tables if name not in self.table_writes)

    @cached_property
    def _uncommitted(self) -> tuple[dict[str, list[TableWrite]], dict[str, list[TableWrite]]]:
        """Return the uncommitted writes in the tables, by name: those the person is told of, and later ones.

        A request tells of all that it finds. While it waits, another one may only repeat that: the next run names a
        write that came later.
        """
        request, shown = self._state.request, self._state.shown
        told: dict[str, list[TableWrite]] = {}
        later: dict[str, list[TableWrite]] = {}
        for name, found in self.table_writes.items():
            for write in found.writes:
                if write.is_fence or write.place == "gone":
                    continue
                is_told = request is None or self._as_seen(name, write) in (*request.seen, *shown)
                (told if is_told else later).setdefault(name, []).append(write)
        for seen in shown:
            if seen.write in self._unread:
                version = None if seen.sink_version == UNKNOWN_VERSION else seen.sink_version
                write = TableWrite(txn_version(seen.epoch, seen.batch_id), version)
                told.setdefault(seen.write, []).append(write)
        return told, later

    def _as_seen(self, name: str, write: TableWrite) -> SeenBatch:
        return as_seen(name, write, self._epoch, self._planned)

    def _unknown(self) -> list[tuple[str, TableWrite]]:
        """Return the writes, still in their tables, of batches and epochs that the ledger does not know."""
        return [
            (name, write)
            for name, found in self.table_writes.items()
            for write in found.writes
            if write.place != "gone"
            and (write.epoch > self._state.epoch if write.is_fence else not self._is_planned(write))
        ]

    def _is_planned(self, write: TableWrite) -> bool:
        """Whether a write belongs to a planned batch: by its number, and by its manifest if the commit names one."""
        if write.epoch != self._epoch:
            return False
        planned = next((batch for batch in self._planned if batch.batch_id == write.batch_id), None)
        return planned is not None and write.digest in (None, planned.digest)

    def _refuse_unknown(self) -> None:
        """Refuse to continue at the position if a table has batches that the ledger does not know."""
        unknown = self._unknown()
        if not unknown or self._sink is None:
            return
        name = unknown[0][0]
        newest = max((one for of, one in unknown if of == name), key=lambda one: one.transaction)
        what = f"epoch {newest.epoch}" if newest.is_fence else f"batch {newest.batch_id} of epoch {newest.epoch}"
        if not newest.is_fence and any(batch.batch_id == newest.batch_id for batch in self._planned):
            what = f"another {what}"
        where = "" if newest.version is None else f" in version {newest.version}"
        again = " --replace" if self._state.phase == "requested" else ""
        position = self._state.position if self._state.closed is None else self._state.closed.position
        start = None if position is None else Offset.from_json(position)
        later = "all batches" if start is None or start.is_initial_snapshot else "all later batches"
        raise LedgerError(
            f"stream {self._name!r}: write {name!r} has {what}{where} of {self._sink.tables[name]}, which the "
            "ledger does not know; the ledger may have been restored from an older copy. Restore the newest copy "
            f"of the staging folder. If there is none, remove the rows of {later} from the tables, then "
            f"run `fds rewind {self._name}{again} --to {target_from(start, self._sink)} --why …`",
            table=self._state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )

    def _landed_by_evidence(self, reported: Sequence[bool], *, is_answered: bool) -> int:
        """Return how many planned batches, counted from the first, have landed in all writes."""
        for number, batch in enumerate(self._planned):
            writes = [self._by_evidence(name, (batch,), has_returned=reported[number]) for name in self.names]
            # a person's answer is about the first batch from which the function has not returned
            is_open = not reported[number] and (is_answered or not writes)
            if is_open or not all(writes):
                return number
        return len(self._planned)

    def _has_traces(self, batch: PlannedBatch) -> bool:
        return any(self._write(name, batch) is not None for name in self.table_writes)

    def _write(self, name: str, batch: PlannedBatch) -> TableWrite | None:
        wanted = txn_version(self._epoch, batch.batch_id)
        found = self.table_writes.get(name)
        return None if found is None else next((w for w in found.writes if w.transaction == wanted), None)

    def _by_evidence(self, name: str, batches: Sequence[PlannedBatch], *, has_returned: bool) -> bool | None:
        """Return whether a write of batches has landed, or ``None`` if only a person can tell."""
        answers = {self._of_batch(name, batch, has_returned=has_returned) for batch in batches}
        return answers.pop() if len(answers) == 1 else None

    def _of_batch(self, name: str, batch: PlannedBatch, *, has_returned: bool) -> bool | None:
        if name in self.table_writes:
            has_landed = self._by_its_table(name, batch, has_returned=has_returned)
        else:
            has_landed = True if has_returned else None
        return None if has_landed and self._is_given_up(name, batch) else has_landed

    def _is_given_up(self, name: str, batch: PlannedBatch) -> bool:
        """Return whether a waiting request loads a write again, so that its rows may have been removed for that.

        No person was told of a write that is not in the request, so its rows are there.
        """
        request, closed = self._state.request, self._state.closed
        if request is None or closed is None:
            return False
        # a rewind to a version starts before all uncommitted batches
        start = closed.position if request.to is None else request.to.get("offset")
        if not is_read_again(batch.end, None if start is None else Offset.from_json(start)):
            return False
        write = self._write(name, batch)
        return write is None or self._as_seen(name, write) in request.seen

    def _by_its_table(self, name: str, batch: PlannedBatch, *, has_returned: bool) -> bool | None:
        write = self._write(name, batch)
        if write is not None:
            # only a person can tell whether rows from before a RESTORE are there
            return True if write.place == "there" else None
        later = (other for other in self._planned if other.batch_id > batch.batch_id)
        if any(self._write(name, other) is not None for other in later):
            # the function was called with a later batch, so it had returned from this one
            return True
        return None if has_returned else False

    def _answers(
        self, batches: Sequence[PlannedBatch], landed: bool | Mapping[str, bool] | None, *, has_returned: bool
    ) -> dict[str, bool]:
        """Return for each write whether it landed: the person's answer if given, else what its table's log shows."""
        given = dict.fromkeys(self.names, landed) if isinstance(landed, bool) else dict(landed or {})
        if unknown := [name for name in given if name not in self.names]:
            raise ConfigurationError(
                f"stream {self._name!r}: --landed names {', '.join(map(repr, unknown))}; the writes of its function "
                f"are {', '.join(map(repr, self.names)) or 'not named'}"
            )
        answers: dict[str, bool] = {}
        for name in self.names:
            answer = given.get(name)
            answer = self._by_evidence(name, batches, has_returned=has_returned) if answer is None else answer
            if answer is not None:
                answers[name] = answer
        missing = [name for name in self.names if name not in answers]
        if missing or (not self.names and landed is None):
            raise self._ask(batches, missing)
        return answers

    def _ask(self, batches: Sequence[PlannedBatch], missing: Sequence[str]) -> ConfigurationError:
        sink = "the function" if self._sink is None else self._sink.describe()
        question = ",".join(f"{name}=yes|no" for name in missing) or "yes, or --landed no"
        reasons = []
        for name in missing:
            writes = [write for batch in batches if (write := self._write(name, batch)) is not None]
            undone_at = next((write.undone_at for write in writes if write.undone_at is not None), None)
            if undone_at is not None:
                reasons.append(f"the table of {name!r} was restored or replaced after that, in version {undone_at}")
            elif self._state.request is not None and any(self._is_given_up(name, batch) for batch in batches):
                again = f"the waiting {self._state.request.asked} loads it again"
                reasons.append(f"{again}, so its rows may have been removed from {name!r}")
            elif name in self.table_writes:
                reasons.append(f"the table of {name!r} lacks a write that the driver reported")
        why = ", and ".join(reasons) or "no table shows which of its writes landed"
        return ConfigurationError(
            f"stream {self._name!r}: {_batch_words(batches, self._state)} was handed to {sink}, and {why}. Check your "
            f"tables and answer with --landed {question}",
            reason=Reason.ACTION_REFUSED,
        )

    def _half_landed(
        self, batches: Sequence[PlannedBatch], answers: Mapping[str, bool], *, can_finish: bool
    ) -> LedgerError:
        there = ", ".join(repr(name) for name, landed in answers.items() if landed)
        lacking = ", ".join(repr(name) for name, landed in answers.items() if not landed)
        none = ",".join(f"{name}=no" for name in answers)
        every = ",".join(f"{name}=yes" for name in answers)
        finish = (
            "The next run of the stream finishes the batch; correct the function first if necessary. "
            if self._state.closed is None and can_finish
            else ""
        )
        manifests = " and ".join(
            f"{self._ledger.storage.uri}/{self._ledger.folder.below(batch.manifest)}" for batch in batches
        )
        return LedgerError(
            f"stream {self._name!r}: of {_batch_words(batches, self._state)} {there} has landed but {lacking} has not, "
            f"so a new epoch would either load the first again or lose the second. {finish}Otherwise remove its rows "
            f"from {there} and answer --landed {none}, or write {lacking} yourself from the rows of {manifests} "
            f"and answer --landed {every}",
            table=self._state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )


def _batch_words(batches: Sequence[PlannedBatch], state: StreamState) -> str:
    first, last = batches[0], batches[-1]
    which = f"batch {first.batch_id}" if first is last else f"batches {first.batch_id} to {last.batch_id}"
    return f"{which} ({describe_versions(batches, state.snapshot)})"


def _names(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))


def _listed(writes: Mapping[str, Sequence[TableWrite]]) -> str:
    return "; ".join(f"{name!r} has {', '.join(map(_write_words, found))}" for name, found in writes.items())


def _write_words(write: TableWrite) -> str:
    where = "its commit is missing" if write.version is None else f"version {write.version}"
    if write.place == "unsure":
        where += f", restored or replaced in version {write.undone_at}"
    return f"batch {write.batch_id} ({where})"


def _function_of(state: StreamState) -> SinkBinding | None:
    sink = state.sink or state.fence_sink
    return sink if sink is not None and sink.is_function else None
