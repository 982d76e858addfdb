"""What a sink's log says of this stream and of others, read by the worker: evidence, earlier streams, overlaps.

May import ``position/``. A rule about rows that are in a sink belongs here.
"""
