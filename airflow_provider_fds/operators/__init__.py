"""The Airflow side: operators that load, plan and commit batches of a stream.

Here is what DAG files and Airflow's database name: one operator a module, ``fds_dags``, the links. ``task/`` has what
a DAG file needs to declare a task, ``lineage/`` what a task tells Airflow and OpenLineage, ``run/`` what happens when
it runs. An operator belongs here; everything else of it into one of the rooms.
"""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
