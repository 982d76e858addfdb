from __future__ import annotations

import pytest

from airflow_provider_fds.sinks import DeltaReplaceSink, DeltaTableSink, sink_from_dict


@pytest.mark.parametrize(
    "sink",
    [
        DeltaTableSink("s3://lake/sink", partition_by=["day"], provenance=True),
        DeltaReplaceSink("s3://lake/sink", replace_where="day = DATE '2026-01-01'"),
        DeltaReplaceSink("s3://lake/sink", provenance=True),
        DeltaReplaceSink("s3://lake/sink", partition_by=["day"], dynamic_partition_overwrite=True),
    ],
)
def test_a_sink_is_the_same_after_a_round_trip(sink):
    assert sink_from_dict(sink.to_dict()) == sink


@pytest.mark.parametrize(
    "arguments", [{}, {"replace_where": "a = 1", "dynamic_partition_overwrite": True}, {"replace_where": " "}]
)
def test_a_sink_that_replaces_says_what_in_one_way(arguments):
    with pytest.raises(ValueError, match="replace_where"):
        DeltaReplaceSink("s3://lake/sink", **arguments)


def test_templates_of_uri_and_predicate_are_rendered_and_change_no_identity():
    sink = DeltaReplaceSink("s3://lake/{{ x }}", replace_where="day = '{{ x }}'")
    rendered = sink.rendered(lambda text: text.replace("{{ x }}", "1"))
    assert (rendered.uri, rendered.replace_where) == ("s3://lake/1", "day = '1'")
    assert rendered.identity() == {"kind": "delta_replace", "target": "s3://lake/1"}


def test_a_kind_of_another_version_is_refused_by_name():
    with pytest.raises(ValueError, match="'delta_elsewhere' is not known"):
        sink_from_dict({"kind": "delta_elsewhere", "uri": "s3://lake/sink"})


def test_with_provenance_alone_a_run_replaces_the_rows_of_its_own_versions():
    sink = DeltaReplaceSink("s3://lake/sink", provenance=True)
    assert sink.for_versions(3, 7).replace_where == "_source_version BETWEEN 3 AND 7"
    dynamic = DeltaReplaceSink("s3://lake/sink", provenance=True, dynamic_partition_overwrite=True)
    assert dynamic.for_versions(3, 7).replace_where is None
