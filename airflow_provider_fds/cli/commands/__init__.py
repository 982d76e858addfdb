"""The commands of ``fds``, one module for one or a few: arguments, then one function that performs them.

``cli/main.py`` imports only the module of the chosen one. A command imports what it needs inside the function that
performs it. May import ``cli/fleet/`` and the shared modules of ``cli/``.
Another command is a module here and a line in ``cli/command_list.py``.
"""
