"""What people and systems see of a stream: status, explanation, metrics, alerts, incidents, status files.

May import ``position/``, ``sink_record/`` and ``attempt/``. A field, a condition or a metric belongs here.
"""
