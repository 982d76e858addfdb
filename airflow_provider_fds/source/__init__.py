"""The rules of a streaming read: options, offset, classify a commit, admit files, plan batches.

Delta's streaming source, restated for batches that are planned before they are read. Nothing here imports Spark or
Airflow; what is needed is imported from the module that defines it.
"""
