"""What a task reads and writes, as others see it: inlets, outlets and asset events of Airflow, events of OpenLineage.

May import no other room of ``operators/``. A DAG file imports ``outlets`` and ``emits_lineage``, so what only a run
needs stays out of them. A fact that a task tells about its tables belongs here.
"""
