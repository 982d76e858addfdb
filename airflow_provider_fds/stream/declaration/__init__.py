"""What a DAG file declares: ``DeltaStream``, its ranges and forks, and what a sink needs of it.

DAG files import it, so it imports only values and the source options. A field of ``DeltaStream`` belongs here.
"""
