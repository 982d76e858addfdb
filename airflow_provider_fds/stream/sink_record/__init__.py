"""What a sink's log says of this stream and of others, read by the worker: evidence, earlier streams, overlaps.

May import ``position/``. What the log means is decided in ``batch/sink/sink_account.py``; what a run makes of it is
here.
"""
