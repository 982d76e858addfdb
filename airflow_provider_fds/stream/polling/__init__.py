"""Whether there is something to load now: one poll of the table, and what a waiting task waits for.

May import ``position/``, ``sink_record/`` and ``attempt/``. It writes nothing. Another reason to wait belongs here.
"""
