"""``make numbers``: what counts as a line of code and as a word of documentation."""

from __future__ import annotations

import os

from scripts.project_size import code_lines, seconds_of_files, words

CODE = '''"""A docstring
of two lines."""

# a comment
def double(value):
    """Another."""
    text = """a string
    is code"""
    return (
        value, text
    )
'''


def test_docstrings_comments_and_blank_lines_are_no_code():
    assert code_lines(CODE) == 6


def test_tables_and_pages_that_a_script_writes_are_not_counted():
    table = "one two\n<!-- packages: begin -->\n| three |\n<!-- packages: end -->\nfour\n"
    assert words(table) == 3
    assert words("# Benchmarks\n\nWritten by `make bench`: 2 cores\n| a | b |\n") == 2


def test_the_time_of_a_file_is_that_of_the_newest_run_of_each_of_its_tests(tmp_path):
    case = '<testcase classname="{}" name="{}" time="{}"/>'
    runs = {
        "a.all.xml": [("tests.unit.test_a", "test_x", 9), ("tests.unit.test_a", "test_y[1]", 2)],
        "a.short.xml": [("tests.unit.test_a", "test_x", 1), ("tests.unit.test_b", "test_x", 0.5)],
    }
    for age, (name, cases) in enumerate(runs.items()):
        text = "".join(case.format(*one) for one in cases)
        (tmp_path / name).write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
        os.utime(tmp_path / name, (age, age))
    assert seconds_of_files(tmp_path) == {"tests/unit/test_a.py": 3, "tests/unit/test_b.py": 0.5}
