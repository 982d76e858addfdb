"""From a position and the log to the next batches.

``plan`` reads commit by commit, ``cutter`` and ``admission`` end a batch at a limit, ``start`` and ``end`` resolve
where a stream begins and stops. May import all other parts of ``source/``. A change of how versions become
batches belongs here.
"""
