"""The application that spark-submit starts: reads the job's specification, loads its batches in order, reports.

``job`` is the program, ``fleet_job`` the same for many streams, ``user_job`` the part for a user's own application.
Shipped to the driver. May import the writers and all below them. How batches are loaded one after the other, or side
by side, belongs here.
"""
