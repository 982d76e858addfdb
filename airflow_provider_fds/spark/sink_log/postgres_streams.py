"""Which streams may write to a table of PostgreSQL, by its account. Standard library, Python 3.9 syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.postgres_account import Account
    from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec
    from airflow_provider_fds.sinks import PostgresSink
    from airflow_provider_fds.spark.sink_log.advice import Advice


def register(account: Account, target: str, sink: PostgresSink, one: BatchSpec | FenceSpec, advice: Advice) -> None:
    """Make a stream known for a table. Two streams of one name would load the same rows.

    Args:
        account: In the transaction of the stream's first commit to the table.
        target: The table's id there.
        sink: As declared.
        one: The batch or the fence of that commit.
        advice: For the stream.

    Raises:
        RefusalError: Another stream of the name writes to the table.
    """
    account.lock_target(target)
    other = account.namesake(one.uuid, target, one.stream, sink.other_streams)
    if other is not None:
        recover = advice.recover(sink.identity()["target"])
        raise RefusalError(
            Reason.SINK_OF_NAMESAKE,
            f"stream {one.stream!r} (uuid {one.uuid}): another stream of the same name (uuid {other.uuid}), "
            f"whose ledger is in another staging folder, writes to {sink.describe()}. Both would load the "
            f"same rows. If that ledger was lost, {recover}. Else use one staging folder for "
            "both, or give this stream another name and table; if the other stream loads different rows, "
            f"declare it on this sink: other_streams=['{other.uuid}']",
        )
    account.add_stream(one.uuid, target, one.stream, one.epoch)
