"""One writer for each sink of ``sinks/``, found by its name, and what writers share: columns, merges, user code.

Shipped to the driver. May import ``runtime/``, ``sink_log/`` and ``fence/``. How a batch is written belongs here.
"""
