"""Where the committed offset is kept for people to see, and for a run to start from.

The value is :class:`airflow_provider_fds.ledger.position.Checkpoint`; the ledger decides, this room only keeps.
"""
