"""The log as a whole: the state of the table at a version, its commits in order, commit times, the initial snapshot.

``log.DeltaLog`` is what everybody opens. May import all other parts of ``delta/``. A question about the history of a
table belongs here; what one action or one commit means is in the modules of ``delta/`` itself.
"""
