"""Regular expressions that Java and Python read alike, and those that they do not."""

from __future__ import annotations

import pytest

from airflow_provider_fds.source.options.exclusion import compile_exclusion


@pytest.mark.parametrize(
    ("expression", "path", "is_match"),
    [
        ("ignore", "part-ignore-0.parquet", True),
        ("ignore", "part-0.parquet", False),
        (r"^_tmp/", "_tmp/a.parquet", True),
        (r"^_tmp/", "x/_tmp/a.parquet", False),
        (r"\.crc$", "a.crc", True),
        (r"(?i)IGNORE", "ignored", True),
        (r"day=2026-(0[1-6]|12)-\d{2}/", "day=2026-12-31/a.parquet", True),
        (r"(a)\1", "aa", True),
        (r"a(?=b)", "ab", True),
        (r"(?<!x)a", "xa", False),
        (r"a{2,3}+b", "aab", True),
        (r"(?>a+)b", "aab", True),
        (r"[a\[]b", "[b", True),
        (r"a\.b", "a.b", True),
        (r"%20", "a%20b", True),
        (r"\w", "é", False),
    ],
)
def test_a_pattern_that_both_read_alike_is_searched_for_in_the_path(expression: str, path: str, is_match: bool) -> None:
    assert (compile_exclusion(expression).search(path) is not None) == is_match


@pytest.mark.parametrize(
    "expression",
    [
        r"\p{Alpha}",
        r"\Qa.b\E",
        r"\h",
        r"\R",
        r"\Z",
        r"\z",
        r"\G",
        r"\k<x>",
        r"\N{DOLLAR SIGN}",
        r"\0101",
        r"(?<x>a)",
        r"(?P<x>a)",
        r"(?P=x)",
        r"(a)?(?(1)b|c)",
        r"(?u)a",
        r"(?x)a b",
        r"(?a)a",
        r"(?#comment)a",
        r"[a-z&&[aeiou]]",
        r"[a[b]]",
        r"a{,3}",
    ],
)
def test_a_pattern_that_they_read_differently_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="Java"):
        compile_exclusion(expression)


@pytest.mark.parametrize("expression", ["(", "[", "*a", "a**b", "a(?i)b", "a\\", "(?<=a+)b"])
def test_a_predicate_that_is_not_an_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="FDS supports what"):
        compile_exclusion(expression)
