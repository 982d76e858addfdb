"""The entries: what each kind records, when it may be written, and what it changes in the state.

The modules ``*_entries`` have one class per kind of entry, with its fields, its rule and its effect; ``entry`` finds
them by that name. ``protocol`` has the rules common to all kinds, ``fold`` the result. All of it is pure. May import
the values of ``ledger/``. Another kind, or another rule, belongs here.
"""
