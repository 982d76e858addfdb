"""What happens when a task runs: sessions and their owner, the load, what is asked, told and alerted.

Operators import it in ``execute``, never while a DAG file is parsed. May import ``task/`` and ``lineage/``. A step of a
task belongs here; a step of every run, with Airflow or without, in ``stream/run/``.
"""
