"""A batch on disk: the manifest Spark reads, and the values that cross the border to the Spark driver.

Nothing is imported here: the driver has ``spec.py`` and the standard library only.
"""
