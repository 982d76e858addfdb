"""A batch as the driver gets it."""

from __future__ import annotations

from airflow_provider_fds.batch.spec import BatchSpec


def batch(epoch=1, number=0, digest="d", uuid="u"):
    return BatchSpec(
        stream="orders",
        uuid=uuid,
        epoch=epoch,
        batch_id=number,
        start="",
        end="e",
        after="s",
        first_version=0,
        last_version=0,
        manifest="m",
        manifest_digest=digest,
        num_files=1,
        num_bytes=1,
        num_rows=1,
        prev_txn_version=None,
    )
