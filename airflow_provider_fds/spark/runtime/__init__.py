"""What every part of the driver stands on: errors, files through Hadoop, settings, versions, the attempt's identity.

Shipped to the driver. May import nothing else of ``spark/``. A Spark setting, an error class or a version rule belongs
here.
"""
