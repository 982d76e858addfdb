"""What the tests of the page share."""

from __future__ import annotations

from tests.unit.stream.conftest import bench

__all__ = ["bench"]
