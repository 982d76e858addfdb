"""What ``fds run``, ``plan`` and ``status`` do with ``--file FILE``: all streams of a file of streams.

May import the shared modules of ``cli/``, no command. What ``--all`` does or shows belongs here.
"""
