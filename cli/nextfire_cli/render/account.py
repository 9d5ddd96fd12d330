"""API keys, quotas and the health of the API."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from nextfire.domain.quotas import Quota
from nextfire_cli.documents import Document
from nextfire_cli.render.tables import fields, table
from nextfire_cli.render.text import between, minute, prefixed, state


def keys(items: Sequence[Document]) -> RenderableType:
    if not items:
        return "No API keys."
    return table(
        ("KEY", "NAME", "SCOPES", "STATE", "EXPIRES (UTC)", "LAST USED", "ONLY"),
        (
            (
                item["keyId"],
                item.get("name", item.get("reason")),
                ",".join(item.get("scopes", [])),
                state(item["state"]),
                minute(item.get("expiresAt")),
                item.get("lastUsedOn", ""),
                _only(item),
            )
            for item in items
        ),
    )


def key(document: Document) -> RenderableType:
    """An API key, without its text."""
    return fields(
        ("Key", document["keyId"]),
        ("Name", document["name"]),
        ("Tenant", document.get("tenant")),
        ("Scopes", ", ".join(document["scopes"])),
        ("State", state(document["state"])),
        ("Created", document["createdAt"]),
        ("Expires", document["expiresAt"]),
        ("Revoked", document.get("revokedAt")),
        ("Last used", document.get("lastUsedOn")),
        ("Only", _only(document)),
    )


def _only(key: Document) -> str:
    """What an API key is restricted to."""
    labels = [f"{name}={value}" for name, value in key.get("labels", {}).items()]
    return ", ".join([*key.get("cidrs", []), *labels])


def quotas(document: Document) -> RenderableType:
    """All quotas, with the limits of the tenant and their usage."""
    limits, used = document["quotas"], document["used"]
    # A newer API may have quotas that this command does not know.
    names = dict.fromkeys([*map(str, Quota), *limits])
    own = document.get("ownEntry")
    entry = (
        "with its own entry in the setting quotas"
        if own
        else "without an entry in the setting quotas: it has the default ones"
    )
    tenant = None if own is None else f"{document['tenant']}, {entry}"
    return Group(
        table(
            ("QUOTA", "AT MOST", "USED"),
            ((name, limits.get(name, "none"), used.get(name, "")) for name in names),
        ),
        "",
        fields(
            ("Minute ends", document["minuteEndsAt"]),
            ("Weight", document["weight"]),
            ("Tenant", tenant),
        ),
    )


def health(document: Document) -> RenderableType:
    """The health of the API, and the local stack if there is one."""
    return fields(
        ("Status", document["status"]),
        ("On time", {True: "yes", False: "no"}.get(document.get("onTime", ""))),
        ("Endpoint", document["endpoint"]),
        ("API time", document.get("time")),
        *_activity(document.get("activity", {})),
        ("Quota", _used_up(document.get("usedUp"))),
        ("Scripts", prefixed("s3://", document.get("scripts_bucket"))),
        ("AWS", document.get("aws_endpoint")),
        *(
            (f"Pool {name}", f"served by {pool['executor']}")
            for name, pool in document.get("pools", {}).items()
        ),
        *((name, _part(part)) for name, part in document.get("parts", {}).items()),
        *((f"Watcher {each['group']}", _watcher(each)) for each in document.get("watchers", [])),
    )


def _used_up(found: Document | None) -> str | None:
    """The quota of runs per minute, of which nothing is left until the end of the minute."""
    if found is None:
        return None
    runs = found[Quota.RUNS_PER_MINUTE]
    return (
        f"{Quota.RUNS_PER_MINUTE} is used up: {runs} of {runs}; further runs wait until "
        f"{found['minuteEndsAt']}"
    )


def _activity(found: Document) -> list[tuple[str, object]]:
    """What the stack does. Zeros are shown: they say that nothing is late."""
    rows = [
        ("Late", "late", f"the oldest was due {found.get('lagSec')} s ago"),
        (
            "Held",
            "held",
            "wait for an earlier run, a quota or a destination: nextfire endpoints list",
        ),
        ("Queued", "queued", f"the oldest waits for {found.get('waitSec')} s"),
        ("Running", "running", ""),
        ("Waiting", "waiting", "retries, redrives and runs on request"),
        ("Succeeded", "succeeded", "in 15 minutes"),
        ("Died", "failed", "in 15 minutes: nextfire runs list --state DEAD"),
    ]
    shown: list[tuple[str, object]] = [
        (label, f"{found[name]}{' or more' if found.get('more') else ''}" + _if(found[name], text))
        for label, name, text in rows
        if name in found
    ]
    if "asOf" in found:
        shown.append(("As of", f"{found['asOf']}, {found['lagSec']} s later"))
    return shown


def _if(count: int, text: str) -> str:
    return f"  ({text})" if count and text else ""


_WATCHERS = {
    "NEW": "was never started: the first one starts within a minute",
    "WATCHING": "renews its lease",
    "ASLEEP": "sleeps: nothing is due soon",
    "LOST": "does not renew its lease",
    "STOPPED": "has not run for minutes",
}


def _watcher(group: Document) -> str:
    """A group of watchers of a deployed stack."""
    state = _WATCHERS.get(group["state"]) or str(group["state"])
    if (takeover := group.get("takeover")) is None:
        return state
    after = between(takeover, "lostAt", "takenAt")
    return f"{state}; one was lost at {takeover['lostAt']}, and another took over after {after}"


def _part(part: Document) -> str:
    """A part of the embedded stack."""
    state = "does not run" if part["pid"] is None else f"pid {part['pid']}"
    if not part["deaths"]:
        return state
    times = "once" if part["deaths"] == 1 else f"{part['deaths']} times"
    return f"{state}, died {times}, last {part['lastDeath']}"
