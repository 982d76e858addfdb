"""One run of a stream: open, plan, hand out, collect, commit; over offsets or over data intervals.

``session.StreamSession`` is what operators and commands use, a scope (``offset_scope``, ``interval_scope``) what it
runs over. May import ``planning/`` and all below it. A step of every run belongs here.
"""
