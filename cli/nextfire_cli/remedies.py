"""Remedies of the API and of the client in the words of this command: commands and flags instead
of requests and arguments.
"""

import re
from collections.abc import Mapping
from typing import Any

from nextfire.client.errors import ClientError

_COMMANDS = {
    "Look at its schedule: POST /v1/schedules/preview with `after`": (
        "Look at its schedule: nextfire jobs get JOB_ID, and nextfire schedules preview --after"
    ),
    "DELETE /v1/jobs/{jobId}/backfill": "nextfire jobs backfill JOB_ID --stop",
    "POST /v1/jobs/{jobId}/run": "nextfire jobs run JOB_ID",
    "POST /v1/jobs/{jobId}/pause or /resume, or DELETE the job": (
        "nextfire jobs pause, nextfire jobs resume or nextfire jobs delete"
    ),
    "POST /v1/executions/{executionId}/chain/redrive": (
        "nextfire runs redrive EXECUTION_ID --from JOB_ID"
    ),
    "POST /v1/keys": "nextfire keys create NAME",
    "each as for POST /v1/jobs": "each as for nextfire jobs create --file",
    "Change it with PATCH": "Change it with nextfire jobs update",
    "in a PATCH set it to null": "set it to null in a file for nextfire jobs update --file",
    "use a new Idempotency-Key": "repeat the command",
    "Omit If-Match to create it": "Create it with nextfire jobs create",
    "GET /v1/quotas": "nextfire quotas",
    "GET /v1/openapi.json lists the routes": (
        "An id cannot contain a slash or a line feed. Otherwise the API is older than this"
        " command: update it"
    ),
    "Narrow `from` and `to`": "Narrow --from and --to",
    "Swap `from` and `to`": "Swap --from and --to",
    "raise `max`": "raise --max",
    "Without an offset it is UTC; in a URL a `+` is written `%2B`.": "Without an offset it is UTC.",
    "Use an id from the list of executions of the job": "nextfire runs list JOB_ID shows the ids",
    "`from`": "--from",
    "`to`": "--to",
}
"""What remedies say, and what users of the command do instead. Longer texts come first."""
_OF_A_SCHEDULE = {
    "write a job with `type` ONCE, and the instant as its `schedule`": "use --at",
    "write a job with `type` INTERVAL, and the duration as its `schedule`": "use --every",
    "use the type INTERVAL": "use --every",
    "as `timezone`": "as --timezone",
    "in `timezone`": "in the time zone of the job (--timezone)",
}
"""The same, about a schedule that was typed. One in a file is corrected there."""
_FLAGS = {name: f"--{name}" for name in ("from", "to", "max", "until", "pool")} | {
    "cidrs": "--cidr"
}
"""The flags of commands that have one for each of these fields."""
_ARGUMENT = re.compile(r'\b(endpoint=URL|profile=NAME|region=NAME|auth="(?:keys|iam|jwt)")')
"""An argument of `nextfire.Client` in a remedy."""
_LISTED = {
    "Job": "nextfire jobs list",
    "Key": "nextfire keys list",
    "Script": "nextfire scripts list",
    "Execution": "nextfire runs list JOB_ID",
}
"""What lists the ids of resources that were not found."""
_NOT_FOUND = re.compile(
    rf"^({'|'.join(_LISTED)})( .* was not found\.) List yours to see their ids", re.MULTILINE
)
_FIELD = re.compile(r"^(\w[\w.]*?)(?:\.[0-9]+(?:\.job)?)?: ", re.MULTILINE)


def with_flags(text: str) -> str:
    """*text*, a remedy of the client, with flags instead of arguments: ``--endpoint URL``."""
    return _ARGUMENT.sub(lambda found: "--" + found[0].replace("=", " ").replace('"', ""), text)


def document_with_flags(error: ClientError) -> dict[str, Any]:
    """The document of *error*, with flags instead of arguments in its texts."""
    document = error.document()
    return {k: with_flags(v) if isinstance(v, str) else v for k, v in document.items()}


def in_words_of_the_command(text: str, flags: Mapping[str, str] | None = None) -> str:
    """*text*, a problem or a remedy from the API or the client, with commands instead of requests
    and flags instead of arguments. *flags*: the flags that were typed, by the field that each sets.
    """
    text = _NOT_FOUND.sub(
        lambda found: f"{found[1]}{found[2]} {_LISTED[found[1]]} shows the ids", with_flags(text)
    )
    known = {**_FLAGS, **(flags or {})}
    meant = _COMMANDS | (_OF_A_SCHEDULE if "schedule" in known else {})

    def flag(found: re.Match[str]) -> str:
        return f"{known[found[1]]}: " if found[1] in known else found[0]

    said = "|".join(map(re.escape, meant))
    return re.sub(said, lambda found: meant[found[0]], _FIELD.sub(flag, text))
