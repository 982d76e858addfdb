"""Names of a package that are loaded on first use, so that importing the package costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def loads(package: str, names: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: Name of the package.
        names: Module, relative to the package -> its public names.
    """
    modules = {name: module for module, found in names.items() for name in found}

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module}"), name)

    return load


__all__ = ["loads"]
