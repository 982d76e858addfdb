from __future__ import annotations

import pytest

from airflow_provider_fds.delta.actions import Metadata, Protocol
from airflow_provider_fds.delta.protocol import READABLE_FEATURES, check_readable
from airflow_provider_fds.errors import UnsupportedFeatureError


def check(reader=(), writer=(), version=3, metadata=None):
    protocol = Protocol(version, 7, tuple(reader), tuple(writer))
    check_readable(protocol, table="s3://lake/t", version=4, metadata=metadata)


@pytest.mark.parametrize("feature", sorted(READABLE_FEATURES))
def test_every_feature_of_the_list_is_read(feature):
    check([feature], [feature])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_protocols_without_features_are_read(version):
    check_readable(Protocol(version, 5), table="t", version=0)


@pytest.mark.parametrize(
    ("feature", "why"),
    [
        # without the feature, the table's newest commits would still be elsewhere
        ("catalogManaged", "only a catalog knows.*Give its name in the catalog"),
        ("catalogOwned-preview", "only a catalog knows.*Give its name in the catalog"),
        ("redirectReaderWriter-preview", "the table has moved.*DROP FEATURE"),
        ("adaptiveMetadata-preview", "need not list their files.*DROP FEATURE"),
        ("geospatial", "does not know its types.*DROP FEATURE"),
        ("fooUnknown", "FDS does not know it.*DROP FEATURE"),
    ],
)
def test_a_reader_feature_that_is_not_in_the_list_is_refused_by_name(feature, why):
    message = rf"version 4 of s3://lake/t .*'{feature}': .*{why}"
    with pytest.raises(UnsupportedFeatureError, match=message) as caught:
        check(["deletionVectors", feature], ["deletionVectors", feature])
    assert caught.value.features == (feature,)
    assert (caught.value.table, caught.value.version, caught.value.retryable) == ("s3://lake/t", 4, False)


def test_the_way_on_from_an_unknown_feature_leaves_no_version_out():
    with pytest.raises(UnsupportedFeatureError) as caught:
        check(["fooUnknown"], ["fooUnknown"])
    assert "starting_version" not in str(caught.value)
    assert "load the whole table" in str(caught.value)


def test_a_reader_ignores_an_unknown_writer_feature():
    check([], ["fooUnknown", "appendOnly", "inCommitTimestamp", "rowTracking"])


@pytest.mark.parametrize("feature", ["coordinatedCommits-preview", "redirectWriterOnly-preview", "catalogManaged"])
def test_writer_features_that_move_the_commits_elsewhere_are_refused(feature):
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check([], [feature], version=1)


def test_a_redirect_in_the_properties_is_refused():
    metadata = Metadata("id", configuration={"delta.redirectReaderWriter-preview": '{"type":"PathBasedRedirect"}'})
    with pytest.raises(UnsupportedFeatureError, match="the table has moved"):
        check(metadata=metadata)


@pytest.mark.parametrize("version", [4, 99])
def test_a_higher_reader_version_is_refused(version):
    with pytest.raises(UnsupportedFeatureError, match=rf"needs reader version {version}, but FDS supports at most 3"):
        check(version=version)


def test_all_unsupported_features_are_named_together():
    with pytest.raises(UnsupportedFeatureError) as caught:
        check(["a", "b", "columnMapping"], ["a", "b"])
    assert caught.value.features == ("a", "b")
