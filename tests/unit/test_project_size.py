"""``make numbers``: what counts as a line of code and as a word of documentation."""

from __future__ import annotations

from scripts.project_size import code_lines, words

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
