"""Drivers that run in a cluster: how they are started, looked at and stopped.

Runs on the worker. May import what is below it in ``spark/``. One module for each kind of cluster, with the verbs of
``cluster.py``; another cluster is another module here, and one in ``backends/`` that chooses it. What a
cluster says of a driver saves work, and is no evidence: a driver that it calls ended may still report, and only the
sink says what is done.
"""
