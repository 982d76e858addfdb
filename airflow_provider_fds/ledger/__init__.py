"""What is decided about a stream: entries, their fold, and the log in staging that holds them (docs/design/ledger.md).

``epoch_entries``, ``batch_entries``, ``interval_entries`` and ``operator_entries`` have a class for each kind of entry:
its fields, its rule and its effect. ``protocol`` is what holds for all of them. Both are pure; ``log.Ledger`` does the
input and output around them.
"""
