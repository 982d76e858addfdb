"""The writes that close epochs or register a stream in a sink, and the removal of rows that goes with them.

Shipped to the driver. May import ``runtime/`` and ``sink_log/``. What a fence does or reports belongs here.
"""
