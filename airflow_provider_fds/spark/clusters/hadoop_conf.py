"""What Hadoop's configuration says of YARN: where the ResourceManagers are, and whether they want Kerberos."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Environment variables with such a folder, in the order of Spark's class path.
_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_RM: Final = "yarn.resourcemanager"
_VARIABLE: Final = re.compile(r"\$\{([^${}]+)\}")
_MOST_VARIABLES: Final = 20


def resource_managers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses of the ResourceManagers' web servers, none if no ``yarn-site.xml`` names any.

    Args:
        environ: Environment that names the folder.
    """
    conf = _settings(environ, "yarn-site.xml")
    is_https = conf.get("yarn.http.policy", "").upper() == "HTTPS_ONLY"
    scheme, key, port = ("https", "webapp.https.address", 8090) if is_https else ("http", "webapp.address", 8088)
    ids = [each.strip() for each in _value(conf, f"{_RM}.ha.rm-ids").split(",") if each.strip()]
    is_ha = _value(conf, f"{_RM}.ha.enabled").lower() == "true"
    found = []
    for end in [f".{each}" for each in ids] if is_ha else [""]:
        address = _value(conf, f"{_RM}.{key}{end}")
        host = _value(conf, f"{_RM}.hostname{end}")
        if address or host:
            found.append(f"{scheme}://{address or f'{host}:{port}'}")
    return tuple(found)


def wants_kerberos(environ: Mapping[str, str]) -> bool:
    """Whether ``core-site.xml`` says that Hadoop authenticates by Kerberos."""
    return _value(_settings(environ, "core-site.xml"), "hadoop.security.authentication").lower() == "kerberos"


def _settings(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the settings of the first file of that name; none if there is no file that can be read."""
    for folder in (environ.get(variable) for variable in _FOLDERS):
        if not folder or not (file := Path(folder, name)).is_file():
            continue
        try:
            root = ET.parse(file).getroot()  # noqa: S314 - the worker's own configuration
        except (OSError, ET.ParseError):
            return {}
        return {
            (each.findtext("name") or "").strip(): (each.findtext("value") or "").strip()
            for each in root.iter("property")
        }
    return {}


def _value(conf: Mapping[str, str], name: str) -> str:
    """Return a setting with the values of the settings that it refers to; empty if it is not set."""
    text = conf.get(name, "")
    for _ in range(_MOST_VARIABLES):
        if (found := _VARIABLE.search(text)) is None:
            break
        text = f"{text[: found.start()]}{conf.get(found[1], '')}{text[found.end() :]}"
    # the address to listen at, which Hadoop's defaults name, leads nowhere
    return "" if text.startswith(("0.0.0.0", ":")) or "${" in text else text  # noqa: S104 - compared, not bound
