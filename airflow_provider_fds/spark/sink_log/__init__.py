"""What a sink's own log says, read on the driver: commits, transactions, other writers, and where a sink may be.

Shipped to the driver. May import ``runtime/``. What the log means is decided in ``batch/sink/sink_account.py``; how the
driver reads it belongs here.
"""
