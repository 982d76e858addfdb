"""A search by time gives what the times of all commits, one by one, say."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.delta.storage.local import LocalStorage

T0 = 1_704_067_200_000


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file_times=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    steps=st.lists(st.integers(1, 5), max_size=4),
    asked=st.integers(-1, 40),
)
def test_a_search_agrees_with_the_times_of_all_commits_one_by_one(
    tmp_path_factory, log_builder, file_times, steps, asked
):
    builder = type(log_builder)(tmp_path_factory.mktemp("log") / "table")
    builder.create(timestamp_ms=T0 + file_times[0])
    for offset in file_times[1:]:
        builder.append(timestamp_ms=T0 + offset)
    expected = list(accumulate(file_times, lambda before, at: max(at, before + 1)))
    # in-commit times are switched on behind the commits with file times; they rise, the first one above all before it
    in_commit = list(accumulate(steps, initial=expected[-1]))[1:]
    for number, at in enumerate(in_commit):
        configuration = {
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": str(len(file_times)),
            "delta.inCommitTimestampEnablementTimestamp": str(T0 + in_commit[0]),
        }
        action = builder.metadata(configuration=configuration) if number == 0 else builder.add()
        builder.commit(action, inCommitTimestamp=T0 + at, timestamp_ms=T0 + 3)
    expected += in_commit
    log = DeltaLog(LocalStorage(str(builder.root)))
    timestamps = CommitTimestamps(log)
    metadata = log.state_at(builder.version).metadata

    assert [timestamps.of(commit, metadata) - T0 for commit in log.commits(0, builder.version)] == expected
    assert timestamps.at_or_after(T0 + asked) == next((v for v, at in enumerate(expected) if at >= asked), None)
    assert timestamps.at_or_before(T0 + asked) == max((v for v, at in enumerate(expected) if at <= asked), default=None)
