"""The job in a session of the worker's own: a warm child process, or a Spark Connect server.

Runs on the worker. May import ``application/`` and ``submission/``, since the job is the same. Another way to reach a
running Spark belongs here.
"""
