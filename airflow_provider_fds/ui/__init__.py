"""The page "Delta streams" in Airflow's UI: the plugin, its API, and the files of the page in ``static``.

What the list shows of a stream is in ``static/js/columns.js``; the values come from status files by ``rows``.
A new value is also one of ``status``, ``status_row`` and ``status_file`` in ``stream/monitoring/``.
"""
