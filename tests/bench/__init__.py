"""Measurements of FDS and of what it is compared with, in one run: ``make bench`` writes ``docs/benchmarks.md``."""
