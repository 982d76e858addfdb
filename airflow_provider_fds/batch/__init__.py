"""A batch on disk: the manifest that Spark reads, and the values exchanged with the Spark driver.

This module imports nothing: the driver has only ``spec.py`` and the standard library.
"""
