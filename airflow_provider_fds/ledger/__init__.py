"""What is decided about a stream: entries, their fold, and the log in staging that holds them (docs/design/ledger.md).

The modules ``*_entries`` have one class per kind of entry, with its fields, its rule and its effect. ``protocol`` has
the rules common to all kinds. All of these are pure; ``log.Ledger`` does the I/O.
"""
