"""The content of a built manifest, which may be in memory or in a temporary file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.batch.manifest.manifest import Manifest


def commit_json(manifest: Manifest) -> bytes:
    """Return the whole commit of ``manifest``."""
    manifest.commit.seek(0)
    return manifest.commit.read()
