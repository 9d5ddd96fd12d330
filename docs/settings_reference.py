"""Writes docs/reference/settings.md from the JSON schema of the settings."""  # noqa: INP001 - see reference.py

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from infra.settings import Settings

PAGE = Path(__file__).with_name("reference") / "settings.md"
_MARK = "written by `make docs`. -->\n"
_SCHEMA = Settings.model_json_schema()
_TABLES = {
    "Settings": "## Settings of the deployment",
    "PoolSettings": "## Settings of a pool",
    "FargateSettings": "### `fargate`",
    "VpcSettings": "### `vpc`",
    "JwtSettings": "## `jwt`",
    "KmsSettings": "## `kms`",
    "AuditLockSettings": "## `auditLock`",
    "DueCapacity": "## `dueCapacity`",
    "Adopted": "## `adopt`",
    "AdoptedStreams": "### `adopt.streams`",
}
_ELSEWHERE = {
    "Egress": "[text or list](../operate/deploy.md#what-scripts-may-reach)",
    "IamRule": "[object](../operate/identity.md#signed-requests)",
    "PackagePolicy": "[object](../guide/scripts.md#which-packages-a-pool-installs)",
    "RunRetention": "[object](../operate/cost.md#retention)",
    "TenantQuotas": "[object](../guide/tenants.md#quotas)",
}
"""Values with a form of their own, and the pages that describe them."""
_DEPLOY = "../operate/deploy.md"
_MORE = {
    "adopt": f"{_DEPLOY}#deploying-again-over-retained-data",
    "auditEvery": "../internals/protocol.md#the-auditor",
    "auditLock": "../operate/audit.md",
    "auditSegments": "../internals/protocol.md#segments",
    "auditRetention": "../operate/audit.md",
    "auth": "../operate/identity.md",
    "dueCapacity": "../operate/cost.md#steady-load",
    "fargate": f"{_DEPLOY}#workers-on-fargate",
    "isolation": f"{_DEPLOY}#a-task-per-run",
    "jobRetention": "../operate/cost.md#retention",
    "jobRole": f"{_DEPLOY}#a-role-for-scripts",
    "kms": f"{_DEPLOY}#encryption-keys",
    "maxBacklog": "../guide/policies.md#backlogs",
    "packageIndexSecret": f"{_DEPLOY}#a-private-package-index",
    "poolAccess": f"{_DEPLOY}#updating-to-separate-pools",
    "tenants": "../guide/tenants.md#close-a-pool-to-other-tenants",
    "trustedSigners": "../guide/scripts.md#signatures",
    "vpc": f"{_DEPLOY}#a-vpc-for-lambda",
    "workerPrincipals": f"{_DEPLOY}#workers-on-any-machine",
    "writeShards": f"{_DEPLOY}#settings",
}
"""Pages that explain more than the description."""


def page() -> str:
    """Return the whole page: the part written by hand, up to the mark, and the tables."""
    parts = [PAGE.read_text().partition(_MARK)[0] + _MARK]
    for name, heading in _TABLES.items():
        schema = _SCHEMA if name == "Settings" else _SCHEMA["$defs"][name]
        parts.append(f"{heading}\n\n" + "\n".join(_rows(schema)) + "\n")
    return "\n".join(parts)


def _rows(schema: dict[str, Any]) -> Iterator[str]:
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, field in schema["properties"].items():
        default = "required" if key in schema.get("required", ()) else _default(field)
        more = f" [More]({_MORE[key]})." if key in _MORE else ""
        meaning = _cell(field.get("description", "")) + more
        yield f"| `{key}` | {_value(field)} | {default} | {meaning} |"


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default in (None, []) or isinstance(default, dict):
        return "none"
    if field.get("format") == "duration":
        return f"`{_duration(TypeAdapter(timedelta).validate_python(default))}`"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _duration(length: timedelta) -> str:
    """*length* in its largest whole unit up to days: pydantic makes 365 days a year."""
    if length.seconds == 0:
        return f"P{length.days}D"
    minutes, seconds = divmod(length // timedelta(seconds=1), 60)
    return f"PT{60 * minutes + seconds}S" if seconds else f"PT{minutes}M"


def _value(field: dict[str, Any]) -> str:
    """Describe the values of a field: its choices, or its type with its bounds."""
    if choices := [each for each in field.get("anyOf", ()) if each != {"type": "null"}]:
        return " or ".join(map(_value, choices))
    if reference := field.get("$ref"):
        return _referenced(reference.rpartition("/")[2])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if field["type"] == "array":
        return f"list{_bounds(field, 'Items')} of {_value(field['items'])}"
    if field["type"] == "object":
        [inner] = [*field.get("patternProperties", {}).values()] or [field["additionalProperties"]]
        return f"object: by name {_value(inner)}"
    if field["type"] in {"integer", "number"}:
        return f"{field['type']}{_bounds(field, 'imum')}"
    other: str = field.get("format", "text")
    return "`true`, `false`" if field["type"] == "boolean" else other


def _referenced(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name in _TABLES:
        heading = _TABLES[name].lstrip("# ").replace("`", "").replace(".", "").lower()
        return f"[object](#{heading.replace(' ', '-')})"
    return _value(_SCHEMA["$defs"][name])


def _bounds(field: dict[str, Any], of: str) -> str:
    least, most = field.get(f"min{of}"), field.get(f"max{of}")
    if least is None and most is None:
        return ""
    if most is None:
        return f", {least:,} or more"
    return f", {least or 0:,} to {most:,}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
