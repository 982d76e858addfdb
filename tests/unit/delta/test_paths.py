from __future__ import annotations

from uuid import UUID

import pytest

from airflow_provider_fds.delta.actions import DeletionVector
from airflow_provider_fds.delta.paths import absolute_path, absolute_vector
from airflow_provider_fds.z85 import decode_z85


# D47
@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ("part-0.parquet", "s3://lake/a%20b/part-0.parquet"),
        ("p=x%2520y/part-0.parquet", "s3://lake/a%20b/p=x%2520y/part-0.parquet"),
        ("p=%C3%A9%3A%25/f", "s3://lake/a%20b/p=%C3%A9%3A%25/f"),
        ("p=a+b/f", "s3://lake/a%20b/p=a+b/f"),
    ],
)
def test_a_relative_path_is_joined_as_text_and_never_encoded_again(logged, expected):
    assert absolute_path("s3://lake/a%20b", logged) == expected


# D47
@pytest.mark.parametrize(
    "logged", ["s3://other/x%20y/f", "file:/origin/f", "abfss://c@a.dfs.core.windows.net/f", "/o/f"]
)
def test_an_absolute_path_of_a_shallow_clone_comes_back_as_it_is(logged):
    assert absolute_path("s3://lake/t", logged) == logged


def test_z85_is_decoded_as_its_specification_says():
    assert decode_z85("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@pytest.mark.parametrize("text", ["Hello1", 'Hell"', "#####", "%nSc1"])
def test_text_that_is_not_z85_is_refused(text):
    with pytest.raises(ValueError, match="not Z85"):
        decode_z85(text)


def test_a_vector_by_uuid_becomes_a_vector_by_path():
    # the example of the protocol, "Deletion Vector Descriptor Schema"
    by_uuid = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", sizeInBytes=40, cardinality=6, offset=4)
    by_path = absolute_vector("s3://lake/a%20b", by_uuid)
    assert by_path == DeletionVector(
        "p",
        "s3://lake/a%20b/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        sizeInBytes=40,
        cardinality=6,
        offset=4,
    )
    assert UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61").bytes == decode_z85("^-aqEH.-t@S}K{vb[*k^")


def test_a_vector_by_uuid_without_prefix_is_in_the_root():
    vector = absolute_vector("s3://lake/t", DeletionVector("u", "^-aqEH.-t@S}K{vb[*k^"))
    assert vector.pathOrInlineDv == "s3://lake/t/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.mark.parametrize("storage_type", ["i", "p"])
def test_inline_vectors_and_vectors_by_path_come_back_as_they_are(storage_type):
    vector = DeletionVector(storage_type, "s3://o/dv.bin", sizeInBytes=3)
    assert absolute_vector("s3://lake/t", vector) is vector


def test_an_unknown_storage_type_is_refused():
    with pytest.raises(ValueError, match="'x' is unknown; expected 'u', 'i' or 'p'"):
        absolute_vector("s3://lake/t", DeletionVector("x", "y"))
