from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_fds.delta.log_checkpoint.add_rows import with_root


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], []),
        ([""], [""]),
        (["a", ""], ["a", ""]),
        (["a/", ""], ["a/", ""]),
        (["a/b", "/c", ""], ["a/b", "file:/c", ""]),
        (["/é", "file:/b"], ["file:/é", "file:/b"]),
    ],
)
@pytest.mark.parametrize("skipped", [0, 2])
def test_only_paths_that_begin_with_a_slash_get_the_root(paths, expected, skipped):
    batch = pa.record_batch({"path": pa.array(["/x"] * skipped + paths, pa.string())}).slice(skipped)

    assert with_root(batch, "file:").column("path").to_pylist() == expected
