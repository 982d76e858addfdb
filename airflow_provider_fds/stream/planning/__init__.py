"""From the position of a stream to planned batches in its ledger, with their manifests.

The rules of the source are in ``source/planning``; here are those of a stream: the backlog, unknown numbers of rows,
event times, whole commits for sinks that decide by key. May import ``epochs/`` and all below it. A rule about what a
run plans belongs here.
"""
