"""One writer for each sink of ``sinks/``, found by its name; ``rows/`` and ``postgres/`` have what they stand on.

Shipped to the driver. May import ``runtime/``, ``sink_log/`` and ``fence/``. How a batch is written belongs here.
"""
