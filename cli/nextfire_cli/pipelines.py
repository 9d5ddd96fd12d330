"""The commands `nextfire apply` and `nextfire export`."""

import json
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from nextfire.client.errors import Fault
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.client.pipelines.diagram import dot, mermaid
from nextfire.client.pipelines.document import Pipeline, PipelineError, read
from nextfire.client.pipelines.export import export as export_jobs
from nextfire.client.pipelines.plan import Action, JobChange
from nextfire_cli import session
from nextfire_cli.confirmation import confirm
from nextfire_cli.job_files import read_documents, read_listed_labels
from nextfire_cli.missing_scripts import Strict, check_scripts
from nextfire_cli.output import Output
from nextfire_cli.render.pipelines import plan as shown_plan
from nextfire_cli.render.pipelines import summary
from nextfire_cli.shared_options import Yes
from nextfire_cli.yaml_text import write_yaml

_EMPTY = Fault(
    "jobs",
    "absent",
    "the file is empty",
    "Write `pipeline: NAME` and `jobs:` with a list of job documents. `jobs: []` removes all jobs"
    " of the pipeline.",
)


class Format(StrEnum):
    """The formats of an export."""

    YAML = "yaml"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"


def apply(
    context: typer.Context,
    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The file of a pipeline, in YAML or JSON; [bold]-[/] for standard input. May be "
            "repeated.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes and make none.")
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Take over jobs that belong to another pipeline, or to none."),
    ] = False,
    yes: Yes = False,
    strict: Strict = False,
) -> None:
    """Create, change and remove jobs until they are as declared in the files of pipelines.

    Shows the changes and asks for confirmation. May be repeated, also after an interruption.

    [bold]Examples[/]
      nextfire apply -f pipeline.yaml
      nextfire apply -f pipeline.yaml --dry-run
      nextfire apply -f etl.yaml -f reports.yaml --yes
    """
    caller = session.of(context)
    client = caller.client()
    declared = read_files(file)
    changes = make_plan(client, declared, adopt=adopt)
    written = [each.request() for each in (*changes.of(Action.CREATE), *changes.of(Action.UPDATE))]
    check_scripts(caller, client, written, strict=strict)
    if dry_run or not changes:
        view = shown_plan(changes, wide=caller.wide)
        caller.show({**changes.document(), "applied": False}, view)
        return
    if not caller.for_programs:
        view = shown_plan(changes, wide=caller.wide)
        caller.out.print(view, crop=False, soft_wrap=True)
    confirm(caller, "Apply these changes?", yes=yes)

    def report(change: JobChange) -> None:
        caller.say(f"{change.job_id}: {change.action}")

    apply_plan(client, changes, report=report)
    caller.show({**changes.document(), "applied": True}, summary(changes, done=True))


def export(
    context: typer.Context,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the jobs of this pipeline.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only jobs with this label, and the other jobs of their pipelines. Repeat the "
            "option: only jobs with all of them.",
        ),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="Format: a file for apply, or a diagram.")
    ] = Format.YAML,
) -> None:
    """Print jobs as the file of their pipeline, for `nextfire apply`, or as a diagram.

    [bold]Examples[/]
      nextfire export > all.yaml
      nextfire export --pipeline etl > pipeline.yaml
      nextfire export --pipeline etl -o mermaid
    """
    caller = session.of(context)
    found = export_jobs(caller.client(), pipeline=pipeline, labels=read_listed_labels(label or ()))
    for name in found.added:
        caller.warn(
            f"The pipeline {name} has jobs without these labels. They are included, because a file"
            " declares all jobs of its pipeline."
        )
    for job_id in found.unreadable:
        caller.warn(f"The job {job_id} cannot be read and is left out. See: nextfire jobs list")
    text = _text(found.pipelines, Format.JSON if caller.output is Output.JSON else output)
    typer.echo(text, nl=False)


def _text(pipelines: list[Pipeline], output: Format) -> str:
    if output is Format.MERMAID:
        return mermaid(pipelines)
    if output is Format.DOT:
        return dot(pipelines)
    documents: list[object] = [each.document() for each in pipelines] or [{"jobs": []}]
    if output is Format.YAML:
        return write_yaml(documents)
    one = documents[0] if len(documents) == 1 else documents
    return json.dumps(one, indent=2, ensure_ascii=False) + "\n"


def read_files(files: list[str]) -> list[Pipeline]:
    """Read the pipelines of *files*; ``-`` is standard input.

    Raises:
        PipelineError: Some are invalid. Its `errors` are those of all files.
    """
    found: list[Pipeline] = []
    wrong: dict[str, list[Fault]] = {}
    for file in files:
        source = "standard input" if file == "-" else file
        documents = [each for each in read_documents(file) if each not in (None, [])]
        if not documents:
            wrong[source] = [_EMPTY]
        for each in documents:
            try:
                found += read(each, source)
            except PipelineError as error:
                wrong.setdefault(source, []).extend(error.errors)
    if not wrong:
        return found
    sources = [*wrong]
    if len(sources) == 1:
        raise PipelineError(f"{sources[0]} is invalid.", wrong[sources[0]])
    faults = [
        replace(each, field=f"{source}: {each.field}")
        for source, errors in wrong.items()
        for each in errors
    ]
    raise PipelineError(f"{', '.join(sources)} are invalid.", faults)
