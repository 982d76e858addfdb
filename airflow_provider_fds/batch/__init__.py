"""A batch on disk: the manifest that Spark reads, and the values exchanged with the Spark driver.

Rules that the driver and Airflow share are here too: ``sink/`` says what a sink's log means (a RESTORE in it, another
writer, a batch), ``column_fit`` and ``column_meaning`` what may be written into a column.

This module imports nothing: the driver has only the standard library and the modules in
``spark/submission/driver_zip.py``.
"""
