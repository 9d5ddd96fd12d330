"""Diagrams of pipelines, as Mermaid and as DOT (Graphviz)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from nextfire.client.pipelines.document import Pipeline
from nextfire.client.pipelines.graph import unknown_parents
from nextfire.domain.definition import JobDefinition
from nextfire.domain.edges import Edge
from nextfire.domain.schedule import ScheduleType

_USUAL = Edge.model_fields["which"].default
_SPECIAL = re.compile(r"[^\w ,.:/+@()-]")


def mermaid(pipelines: Sequence[Pipeline]) -> str:
    """Return *pipelines* as a Mermaid flowchart: a box for each job, an arrow for each edge."""
    numbers = _numbers(pipelines)
    lines = ["flowchart LR"]
    for place, each in enumerate(pipelines):
        inner = [f'{numbers[job_id]}["{_box(job_id, job)}"]' for job_id, job in each.jobs.items()]
        if each.name is None:
            lines += [f"    {line}" for line in inner]
        else:
            lines += [f'    subgraph p{place}["{_entities(each.name)}"]']
            lines += [f"        {line}" for line in inner]
            lines += ["    end"]
    lines += [f'    {numbers[each]}(["{_entities(each)}"])' for each in _outside(pipelines)]
    for parent, child, label in _edges(pipelines):
        arrow = f'-- "{_entities(label)}" -->' if label else "-->"
        lines.append(f"    {numbers[parent]} {arrow} {numbers[child]}")
    return "\n".join(lines) + "\n"


def dot(pipelines: Sequence[Pipeline]) -> str:
    """Return *pipelines* as a DOT graph: a box for each job, an arrow for each edge."""
    lines = ["digraph pipelines {", "    rankdir=LR;", "    node [shape=box];"]
    for place, each in enumerate(pipelines):
        inner = [
            f"{_quoted(job_id)} [label={_quoted(job_id, *_notes(job))}];"
            for job_id, job in each.jobs.items()
        ]
        if each.name is None:
            lines += [f"    {line}" for line in inner]
        else:
            lines += [f"    subgraph cluster_{place} {{", f"        label={_quoted(each.name)};"]
            lines += [f"        {line}" for line in inner]
            lines += ["    }"]
    lines += [f"    {_quoted(each)} [style=dashed];" for each in _outside(pipelines)]
    for parent, child, label in _edges(pipelines):
        note = f" [label={_quoted(label)}]" if label else ""
        lines.append(f"    {_quoted(parent)} -> {_quoted(child)}{note};")
    return "\n".join([*lines, "}"]) + "\n"


def _numbers(pipelines: Sequence[Pipeline]) -> dict[str, str]:
    """The name of each box: ids may be words of the diagram's language."""
    ids = [job_id for each in pipelines for job_id in each.jobs]
    return {job_id: f"n{place}" for place, job_id in enumerate([*ids, *_outside(pipelines)])}


def _outside(pipelines: Sequence[Pipeline]) -> list[str]:
    """The parents that are in none of *pipelines*."""
    jobs = {job_id: job for each in pipelines for job_id, job in each.jobs.items()}
    return sorted({parent for _, parent in unknown_parents(jobs, ())})


def _edges(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, str, str]]:
    """Parent, child and label of each edge."""
    for each in pipelines:
        for job_id, job in each.jobs.items():
            yield from ((edge.job, job_id, _label(edge)) for edge in job.after)


def _label(edge: Edge) -> str:
    delay = f"+{edge.delay_sec} s" if edge.delay_sec else ""
    which = "" if edge.which == _USUAL else edge.which.value
    which += f" within {edge.within_sec} s" if edge.within_sec else ""
    return ", ".join(filter(None, ["setup" if edge.setup else "", which, delay]))


def _notes(job: JobDefinition) -> Iterator[str]:
    """Lines about a job: its schedule, and its trigger rule if it is not the usual one."""
    if job.type is not ScheduleType.AFTER:
        dates = isinstance(job.schedule, tuple)
        yield f"{job.type} {'' if dates or job.schedule is None else job.schedule}".strip()
    if job.trigger_rule is not JobDefinition.model_fields["trigger_rule"].default:
        yield job.trigger_rule.value


def _box(job_id: str, job: JobDefinition) -> str:
    return "<br>".join(map(_entities, (job_id, *_notes(job))))


def _entities(text: str) -> str:
    """*text* with Mermaid's codes for characters that may have a meaning."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)


def _quoted(*lines: str) -> str:
    """A string of DOT, of several lines."""
    return '"' + "\\n".join(json.dumps(each, ensure_ascii=False)[1:-1] for each in lines) + '"'
