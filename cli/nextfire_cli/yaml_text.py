"""YAML as it stands for JSON: read without surprises, and written for people.

PyYAML is used, with its safe loader only: it is maintained, and already reads job files.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
_FORMS = {
    "bool": re.compile("(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile("[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)$"),
    "float": re.compile(
        r"(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
"""Booleans and numbers without quotes: forms of YAML 1.1, without those that people mean as text,
such as NO, on, 12:30, 0123 and 1_000.
"""
_ESCAPED = re.compile("[\x85\u2028-\u202e\u2066-\u2069]")
"""Line ends, which PyYAML writes verbatim and reads as a space or a line feed; and characters that
change the direction of the text in a terminal, which it writes verbatim.
"""
_MERGE = f"{_TAG}merge"


class _Loader(yaml.SafeLoader):
    """Leaves unquoted instants as they are written, reads only `_FORMS` as booleans and numbers,
    and rejects members that occur twice.
    """

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001 — PyYAML's own
    ) -> dict[Hashable, Any]:
        names = set[str]()
        for key in (key for key, _ in node.value if key.tag != _MERGE):
            if (name := str(key.value)) in names:
                problem = f"{name!r} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            names.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _FORMS.get(tag.removeprefix(_TAG), form))
        for tag, form in resolvers
        if tag not in {f"{_TAG}timestamp", f"{_TAG}value"}
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """Indents lists, and writes no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True  # anchors are hard to read, and equal values are not the same value


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _ESCAPED.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def read_yaml(text: str) -> list[object]:
    """Return the documents in *text*. Instants are texts, and so are booleans and numbers that
    have none of `_FORMS`.

    Raises:
        yaml.YAMLError: *text* is not YAML, or an object has a member twice.
    """
    return [*yaml.load_all(text, _Loader)]


def write_yaml(documents: list[object]) -> str:
    """Return *documents*, JSON values, as YAML that `read_yaml` reads back, and that is harmless
    to a terminal.
    """
    written = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        explicit_start=len(documents) > 1,
    )
    # All texts with such a character are in double quotes, where an escape stands for it.
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", str(written))
