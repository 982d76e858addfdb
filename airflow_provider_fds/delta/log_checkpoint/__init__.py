"""Checkpoints of a table's log: classic, in parts, v2 with sidecars; as JSON or as Parquet.

``checkpoints`` finds the newest complete one, ``checkpoint_file`` reads its actions, ``parquet_file`` its columns.
May import ``storage/`` and the actions. Another form of a checkpoint belongs here.
"""
