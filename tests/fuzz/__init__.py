"""Mutations of everything FDS reads from outside; see docs/testing.md."""
