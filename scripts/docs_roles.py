"""Show references such as ``:class:`~package.Name``` in docstrings as code: only Sphinx makes links of them."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|attr|mod|data):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Replaces each role by the last part of the name that it refers to."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002 - griffe's signature
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", obj.docstring.value)
