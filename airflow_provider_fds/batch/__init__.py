"""A batch on disk: the manifest that Spark reads, and the values exchanged with the Spark driver.

This module imports nothing: the driver has only the standard library and the modules in
``spark/submission/driver_zip.py``.
"""
