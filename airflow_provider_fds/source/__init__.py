"""The rules of a streaming read: options, offset, classify a commit, admit files, plan batches.

Delta's streaming source, adapted to batches that are planned before they are read. Nothing here imports Spark or
Airflow. Import names from the module that defines them.
"""
