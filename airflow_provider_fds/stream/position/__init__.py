"""Whether a position still holds, and how much is left: lost positions, ends, changed starts, replaced commits.

May import ``declaration/`` and ``connected_stream``. It reads the source, never the sink. Another way in
which a position becomes invalid belongs here.
"""
