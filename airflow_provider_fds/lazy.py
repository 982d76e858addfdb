"""Names that are loaded on first use, so that importing a package costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def located(package: str, names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the full name of the module that has each public name.

    Args:
        package: Name of the package.
        names: Module, relative to the package -> its public names.
    """
    return {name: f"{package}.{module}" for module, found in names.items() for name in found}


def loads(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: Name of the package.
        modules: Public name -> module that has it.
    """

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return load


def load_class(place: str) -> Any:
    """Import a module and return a class of it.

    Args:
        place: ``module:class``.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
