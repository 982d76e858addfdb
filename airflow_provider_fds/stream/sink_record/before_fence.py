"""Checks a fence's report against the sink's commits before the fence.

Others may be able to write to a report's file. If a report omitted a batch, its rows would be read again; if it omitted
a removal, the removed rows would be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.sink.sink_account import kept
from airflow_provider_fds.batch.transactions import txn_app_id, txn_batch_id, txn_epoch
from airflow_provider_fds.stream.sink_record.sink_commits import sink_commit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.delta.commits import Commit


def problem_before(report: FenceReport, commits: Iterable[Commit], *, is_removing: bool) -> str | None:
    """Return what a report omits of the commits since the stream's last known one, or ``None`` if nothing.

    Args:
        report: The report of a fence that is in the sink.
        commits: The commits before the fence that the log still has, oldest first.
        is_removing: Whether the fence itself removed the rows that are read again.
    """
    app_id = txn_app_id(report.uuid)
    batches: dict[int, str] = {}
    removals: dict[int, int] = {}
    newest: int | None = None
    found = [sink_commit(commit) for commit in commits]
    there = kept(found, app_id).versions
    for commit in found:
        own = commit.transaction_of(app_id)
        if own is None:
            continue
        newest = max(own, newest or 0)
        if commit.version not in there:
            continue
        told = commit.metadata or {}
        if txn_batch_id(own) >= 0:
            batches[commit.version] = f"batch {told.get('batch_id')} of epoch {txn_epoch(own)}"
        elif commit.removes_rows:
            removals[commit.version] = txn_epoch(own)
            if "removes" in told:
                # the stream was read again from an earlier position, so the batches that had landed are gone
                batches = {}
    return _left_out(report, {} if is_removing else batches, removals, newest)


def _left_out(report: FenceReport, batches: dict[int, str], removals: dict[int, int], newest: int | None) -> str | None:
    landed = {batch.sink_version for batch in report.landed}
    version = next((version for version in batches if version not in landed), None)
    if version is not None:
        return f"version {version} of the sink is {batches[version]}, but the report omits it"
    evidence = report.evidence
    if evidence is None:
        return None
    removed = {one.sink_version for one in evidence.removed}
    version = next((version for version in removals if version not in removed), None)
    if version is not None:
        return f"version {version} of the sink is a removal by epoch {removals[version]}, but the report omits it"
    if newest is not None and (evidence.newest is None or evidence.newest < newest):
        return f"the sink has transaction {newest} of the stream, but the report says {evidence.newest}"
    return None
