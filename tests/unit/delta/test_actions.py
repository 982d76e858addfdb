"""Actions as writers log them."""

from __future__ import annotations

import json

import msgspec
import pytest

from airflow_provider_fds.delta.actions import CommitInfo, decode_actions

INFO = {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Append"}, "userMetadata": "m"}
ADD = {"add": {"path": "a", "size": 1}}


def decoded(info: object) -> CommitInfo | None:
    lines = "\n".join(json.dumps(line) for line in ({"commitInfo": info}, ADD))
    found = decode_actions(lines.encode())
    assert found[1].add is not None
    return found[0].commitInfo


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timestamp", "2024-01-01T00:00:00Z"),
        ("timestamp", 1.5),
        ("operation", 3),
        ("operation", {"name": "WRITE"}),
        ("operationParameters", []),
        ("operationParameters", "mode=Append"),
        ("operationMetrics", [1]),
        ("userMetadata", {"job": "nightly"}),
        ("userMetadata", 42),
        ("engineInfo", 1.2),
        ("txnId", 12),
        ("isBlindAppend", "true"),
        ("inCommitTimestamp", "1"),
        ("other", {"x": [None]}),
    ],
)
def test_a_field_of_commit_info_with_an_unexpected_type_counts_as_absent(field: str, value: object) -> None:
    expected = {key: kept for key, kept in INFO.items() if key != field}
    assert decoded({**INFO, field: value}) == CommitInfo(**expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("info", [[], "text", 3, True, [{"operation": "WRITE"}]])
def test_commit_info_may_be_any_json(info: object) -> None:
    assert decoded(info) == CommitInfo()


def test_other_actions_are_not_read_loosely() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_actions(b'{"commitInfo":[]}\n{"add":{"path":1}}')
