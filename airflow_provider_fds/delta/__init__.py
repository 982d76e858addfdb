"""The Delta transaction log, and nothing else: storage, commits, checkpoints, protocol, commit times, schemas.

Importing a module of this package starts no I/O and does not import pyarrow. Import names from the module that defines
them (``from airflow_provider_fds.delta.reader.log import DeltaLog``).
"""
