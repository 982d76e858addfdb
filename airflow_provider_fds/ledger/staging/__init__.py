"""The ledger in staging: read it, write the next entry, keep only what is needed, export it.

``log.Ledger`` is what everybody opens. What it does is made of single accesses (``access``), so that a test can stop a
writer between any two. May import ``entries/``. What is read or written, and when files go, belongs here.
"""
