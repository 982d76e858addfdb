"""The Airflow side: triggers that wait for a table in the triggerer, without a worker.

Watchers of an asset share the poll of a table (``table_poll``); ``watcher_cursor`` says where each continues, and
``stream/polling/table_changes.py`` what counts, and what the event has.
"""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
