"""How an epoch begins: create, open, fence, fork; which rows are read again; what was written late.

May import ``polling/`` and all below it. A rule about how a stream begins or begins again belongs here.
"""
