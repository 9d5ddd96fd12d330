"""The global options of the command, which can be anywhere in it."""

import typer

GLOBAL = {
    "--json": 0,
    "--debug": 0,
    "--output": 1,
    "-o": 1,
    "--endpoint": 1,
    "--profile": 1,
    "--region": 1,
    "--context": 1,
    "--auth": 1,
}
"""The global options and their number of values."""
_OUTPUT = {"-o", "--output"}
_AUTH_OF_CALLBACK = ("{", "@")
"""How values of --auth begin that are the authentication of a callback."""
_FORMATS_OF_EXPORT = {"mermaid", "dot"}
"""Values of --output that only `nextfire export` has."""


def globals_first(args: list[str]) -> list[str]:
    """Return the words of a command with its global options in front of the others."""
    head, tail = _parted(args)
    return head + tail


def asks_for_json(args: list[str]) -> bool:
    """Whether the words of a command ask for JSON, even if others of them are wrong."""
    head, _ = _parted(args)
    words = iter(head)
    output = ""
    for word in words:
        name, _, value = word.partition("=")
        if name in _OUTPUT:
            output = value or next(words, "")
    return "--json" in head or output == "json"


def is_typed(context: typer.Context, parameter: str) -> bool:
    """Whether *parameter* is on the command line, not in the environment."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _parted(args: list[str]) -> tuple[list[str], list[str]]:
    """The global options among *args* with their values, and the other words."""
    head: list[str] = []
    tail: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            tail += [arg, *rest]
        elif (name := arg.partition("=")[0]) in GLOBAL:
            values = 0 if name != arg else GLOBAL[name]
            words = [arg, *(value for _, value in zip(range(values), rest, strict=False))]
            value = words[-1].removeprefix(f"{name}=")
            (tail if _is_of_the_command(name, value) else head).extend(words)
        else:
            tail.append(arg)
    return head, tail


def _is_of_the_command(name: str, value: str) -> bool:
    """Whether *name*, a global option, is with *value* an option of the command."""
    if name == "--auth":
        return value.lstrip().startswith(_AUTH_OF_CALLBACK)
    return name in _OUTPUT and value in _FORMATS_OF_EXPORT
