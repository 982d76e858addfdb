"""What a sink's own log says, read on the driver: commits, transactions, other writers, and where a sink may be.

Shipped to the driver. May import ``runtime/``. A question about the sink's history belongs here.
"""
