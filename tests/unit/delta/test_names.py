from __future__ import annotations

import pytest

from airflow_provider_fds.delta.names import CheckpointName, commit_name, parse_checkpoint_name, parse_commit_name

V7 = "00000000000000000007"


def test_a_commit_name_is_read_back_as_its_version():
    for version in (0, 7, 10**19, 10**20 - 1):
        assert parse_commit_name(commit_name(version)) == version


@pytest.mark.parametrize(
    "name",
    [
        "7.json",
        f"{V7}.json.bak",
        f".{V7}.json.crc",
        f"{V7}.crc",
        f".{V7}.json.9a8b.tmp",
        f"_commit_{V7}.json.tmp",
        f"{V7}.json\n",
        f"{V7}.JSON",
        f"{V7}0.json",
        f"{V7}.00000000000000000009.compacted.json",
        f"{V7}.checkpoint.parquet",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٧.json",  # noqa: RUF001 - digits, but not those of a version
        "_last_checkpoint",
        "",
    ],
)
def test_a_file_that_only_looks_like_a_commit_is_ignored(name):
    assert parse_commit_name(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{V7}.checkpoint.parquet", CheckpointName(7, "classic", 1, 1, "parquet")),
        (f"{V7}.checkpoint.0000000002.0000000003.parquet", CheckpointName(7, "multipart", 2, 3, "parquet")),
        (
            f"{V7}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            CheckpointName(7, "v2", 1, 1, "json"),
        ),
        (
            f"{V7}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
            CheckpointName(7, "v2", 1, 1, "parquet"),
        ),
    ],
)
def test_every_form_of_checkpoint_name_is_known(name, expected):
    assert parse_checkpoint_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        f"{V7}.checkpoint.json",
        f"{V7}.checkpoint.0000000004.0000000003.parquet",
        f"{V7}.checkpoint.0000000000.0000000003.parquet",
        f"{V7}.checkpoint.0000000001.0000000003.json",
        f"{V7}.checkpoint.parquet.tmp",
        f".{V7}.checkpoint.parquet.crc",
        f"{V7}.checkpoint.not-a-uuid.json",
        f"{V7}.json",
    ],
)
def test_a_file_that_only_looks_like_a_checkpoint_is_ignored(name):
    assert parse_checkpoint_name(name) is None
