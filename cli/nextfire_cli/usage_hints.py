"""Hints for wrong usage: the words of other commands (cron, kubectl, gh, aws), and values that the
shell has split.
"""

import re
from collections.abc import Mapping
from typing import Any

_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "add": ("create", "push", "put"),
    "cancel": ("delete",),
    "describe": ("get", "versions", "list"),
    "disable": ("pause", "revoke"),
    "edit": ("update",),
    "enable": ("resume",),
    "get": ("versions", "list"),
    "kill": ("cancel",),
    "ls": ("list",),
    "new": ("create",),
    "next": ("upcoming",),
    "remove": ("delete", "revoke", "purge"),
    "rerun": ("redrive", "run"),
    "retry": ("redrive",),
    "rm": ("delete", "revoke", "purge"),
    "set": ("put", "use"),
    "show": ("get", "versions", "list"),
    "skip": ("skip-next",),
    "start": ("run",),
    "stop": ("pause", "cancel"),
    "suspend": ("pause",),
    "switch": ("use",),
    "tail": ("logs",),
    "trigger": ("run",),
    "upload": ("push",),
    "why": ("get",),
}
"""What other commands call a command, and its names here. The first that a group has is meant."""
_ELSEWHERE: Mapping[str, str] = {
    "apply": "nextfire apply --file FILE",
    "completion": "nextfire --install-completion",
    "config": "nextfire context",
    "crontab": "nextfire apply --file FILE, with a job for each line",
    "diff": "nextfire apply --file FILE --dry-run",
    "export": "nextfire export",
    "failed": "nextfire runs list --state DEAD",
    "help": "nextfire --help",
    "history": "nextfire runs list JOB_ID",
    "import": "nextfire apply --file FILE, with a job for each line",
    "logs": "nextfire runs logs EXECUTION_ID, with an id of nextfire runs list JOB_ID",
    "preview": "nextfire schedules preview",
    "runs": "nextfire runs list JOB_ID",
    "version": "nextfire --version",
    "whoami": "nextfire doctor",
}
"""Commands that a group does not have."""
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--count": ("--limit",),
    "--data": ("--payload",),
    "--delay": ("--in",),
    "--depends-on": ("--after",),
    "--diff": ("--dry-run",),
    "--end": ("--end-at", "--to"),
    "--filename": ("--file",),
    "--for": ("--until",),
    "--force": ("--yes",),
    "--format": ("--output",),
    "--hours": ("--until",),
    "--interval": ("--every",),
    "--limit": ("--count",),
    "--retries": ("--max-attempts",),
    "--schedule": ("--cron", "--at", "--in", "--every", "--date"),
    "--script": ("--handler",),
    "--selector": ("--label",),
    "--since": ("--from",),
    "--start": ("--start-at", "--from"),
    "--tz": ("--timezone",),
    "--until": ("--to", "--end-at"),
    "--url": ("--http",),
    "--verbose": ("--debug",),
    "--watch": ("--follow", "--wait"),
    "-l": ("--label",),
    "-n": ("--limit", "--count"),
    "-p": ("--pool",),
    "-v": ("--debug",),
    "-w": ("--follow", "--wait"),
}
"""What other commands call an option, and its names here. Those that a command has are meant."""
_REDRIVE_MANY = "Try: nextfire dlq redrive --since 12h"
_INSTEAD: Mapping[tuple[str, str], str] = {
    ("apply", "--prune"): "Jobs of the pipeline that left the file are removed without an option.",
    (
        "jobs create",
        "--type",
    ): "It follows from --cron, --at, --in, --every, --date or --after. MANUAL needs --file.",
    ("runs list", "--failed"): "Try: --state DEAD",
    ("runs redrive", "--all"): _REDRIVE_MANY,
    ("runs redrive", "--pool"): _REDRIVE_MANY,
    ("runs redrive", "--since"): _REDRIVE_MANY,
    ("runs redrive", "--state"): _REDRIVE_MANY,
}
"""What to do instead of an option that a command does not have."""
_GLOBAL = {"--debug", "--output"}
"""The names in `_OPTIONS` that every command has."""
_CALLBACK = """--auth '{"type": "bearer", "token": {"secret": "NAME"}}'"""
_WORDING = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "not a whole number",
    "Input should be a valid number, unable to parse string as a number": "not a number",
    "Input should be ": "must be ",
}
"""What Typer takes from pydantic, and what it says here."""
_NO_COMMAND = re.compile(r"(No such command '(.*?)'\.?)")
_EXTRA = re.compile(r"unexpected extra arguments? ?\(?s?\)? ?\((.*)\)", re.DOTALL)
_FILES = (".yaml", ".yml", ".json")
_CRON_FIELDS = re.compile(r"[\d*?/,LW#-]+( [\dA-Za-z*?/,#-]+)+")


def add_hint(error: Any) -> None:  # noqa: ANN401 — Click's classes, as Typer vendors them
    """Add to *error*, Click's error about wrong usage, what was probably meant."""
    for theirs, ours in _WORDING.items():
        error.message = error.message.replace(theirs, ours)
    error.message += _got(error)
    if error.ctx is None:
        return
    command, path = error.ctx.command, _path(error.ctx)
    flags = getattr(getattr(error, "param", None), "opts", ())
    if "--auth" in flags:
        error.message += f" That of a callback is JSON: {_CALLBACK}"
    if "--file" in flags and not error.message:
        error.message = f"For example: {path} --file jobs.yaml"
    if hasattr(error, "possibilities"):
        has = _GLOBAL.union(*(each.opts for each in command.params))
        if instead := _INSTEAD.get((path.removeprefix("nextfire "), error.option_name)):
            error.message, error.possibilities = f"{error.message}. {instead}", None
            return
        options = [each for each in _OPTIONS.get(error.option_name, ()) if each in has]
        error.possibilities = options or error.possibilities
    elif found := _NO_COMMAND.search(error.message):
        if meant := _command(command, path, found[2]):
            error.message = f"{found[1]} Try: {meant}"
    elif found := _EXTRA.search(error.message):
        error.message = f"{error.message}. {_surplus(command, path, found[1])}".rstrip()


def _got(error: Any) -> str:  # noqa: ANN401 — Click's
    """The value that Typer's check refused, if the message does not show it."""
    if not hasattr(error.__cause__, "errors"):
        return ""
    given = str(error.__cause__.errors()[0]["input"])
    return "" if given in error.message else f" (got {given})"


def in_one_line(error: Any) -> str:  # noqa: ANN401 — Click's
    """*error*, Click's error about wrong usage, and the command that shows the help."""
    message = error.format_message() or "Missing command."
    help_ = f" See {_path(error.ctx)} --help" if error.ctx else ""
    return f"{message.rstrip('.')}.{help_}"


def _path(context: Any) -> str:  # noqa: ANN401 — Click's
    """The command of *context* as users type it, however this program was started."""
    return f"{_path(context.parent)} {context.info_name}" if context.parent else "nextfire"


def _command(group: Any, path: str, word: str) -> str | None:  # noqa: ANN401 — Click's
    """The command that *word* means in *group*, which is called *path*. At the root: in `jobs`."""
    if later := getattr(group, "later", None):
        group, path = later["jobs"].load("jobs"), f"{path} jobs"
    names = (word, *_COMMANDS.get(word, ()))
    own = next((f"{path} {each}" for each in names if each in group.commands), None)
    return own or _ELSEWHERE.get(word)


def _surplus(command: Any, path: str, words: str) -> str:  # noqa: ANN401 — Click's
    """What to do about *words* that *command*, which is called *path*, does not take."""
    options = {name for each in command.params for name in each.opts}
    takes = [each.metavar for each in command.params if each.param_type_name == "argument"]
    first = words.split(" ", maxsplit=1)[0]
    if "--cron" in options and _CRON_FIELDS.fullmatch(words):
        return "Quote a value with spaces: --cron '0 3 * * *'"
    if not takes and "--id" in options and first.endswith(_FILES):
        return f"If it is a file: --file {first}"
    if not takes and "--id" in options:
        return f"If it is the id of the job: --id {first}. Quote values with spaces."
    if path.endswith("secrets put"):
        return "The value is read from standard input or --file, never from the command line."
    if not takes:
        one = f" To show one: {path.removesuffix('list')}get {first}"
        return "It takes options only." + (one if path.endswith("jobs list") else "")
    if len(takes) == 1:
        optional = not any(each.required for each in command.params)
        many = ", or use --label KEY=VALUE" if optional and "--label" in options else ""
        return f"It takes one {takes[0]}: repeat the command for each{many}."
    return "Quote values with spaces." if " " in words else ""
