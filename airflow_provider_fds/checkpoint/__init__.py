"""Stores for the committed offset: people see it there, and a run starts from it.

The value is :class:`airflow_provider_fds.ledger.position.Checkpoint`; the ledger decides, this package only stores.

Another store is a module here and a line in ``registry.py``; what imports Airflow or pyspark also needs a line in the
import contracts of pyproject.toml. A store with one value for each place, as ``file:``, also changes ``fork_fields``
and ``backfill_range`` in ``stream/declaration/``. The docstring of ``DeltaStream`` lists the stores.
"""
