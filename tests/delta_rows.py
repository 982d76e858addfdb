"""What a small Delta table has, read by delta-rs: Spark needs half a second of the processor for it."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import deltalake

if TYPE_CHECKING:
    import pyarrow as pa


def _rows(table: str | Path) -> pa.Table:
    with TemporaryDirectory() as folder:
        # delta-rs takes "%20" in a path for a space
        copy = shutil.copytree(table, Path(folder) / "table")
        return deltalake.DeltaTable(copy).to_pyarrow_table()


def ids(table: str | Path) -> list[int]:
    """Return the values of ``id``, sorted."""
    return sorted(_rows(table).column("id").to_pylist())


def num_rows(table: str | Path) -> int:
    """Return the number of rows."""
    return int(_rows(table).num_rows)
