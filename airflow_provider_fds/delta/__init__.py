"""The Delta transaction log, and nothing else: storage, commits, checkpoints, protocol, commit times, schemas.

Importing a module of this room starts no I/O and does not import pyarrow; what is needed is imported from the module
that defines it (``from airflow_provider_fds.delta.log import DeltaLog``).
"""
