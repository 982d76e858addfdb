"""Settings of hypothesis for the unit tests."""

from __future__ import annotations

from hypothesis import settings

# No test fails because the machine was busy when it ran.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")
