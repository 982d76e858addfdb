"""Stores for the committed offset: people see it there, and a run starts from it.

The value is :class:`airflow_provider_fds.ledger.position.Checkpoint`; the ledger decides, this package only stores.
"""
