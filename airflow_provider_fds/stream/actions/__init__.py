"""What a person may do to a stream: rewind, skip, recover, retire and the others, prepared and then performed.

``operator_actions`` is the one list of them for CLI, operator and page. May import ``run/`` and all below it. Another
action belongs here.
"""
