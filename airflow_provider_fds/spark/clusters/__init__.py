"""Drivers that run in a cluster: how they are started, looked at and stopped.

Runs on the worker. May import ``runtime/``, ``installation/`` and ``submission/``. One module for each kind of cluster,
behind the protocol in ``cluster.py``. What a cluster says of a driver saves work, and is no evidence: a driver that it
calls ended may still report, and only the sink says what is done.
"""
