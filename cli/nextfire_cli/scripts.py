"""The commands of `nextfire scripts`."""

# Imported on first use: boto3 takes a second.
# ruff: noqa: PLC0415

import contextlib
import hashlib
import os
import shutil
import sys
import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.script import MAX_SCRIPT_BYTES, check_no_ending, script_name, split_url
from nextfire.domain.target import Target
from nextfire_cli import render, session
from nextfire_cli.confirmation import confirm
from nextfire_cli.documents import first
from nextfire_cli.errors import CliError, MissingError, reported
from nextfire_cli.pool_hints import say_if_unknown
from nextfire_cli.shared_options import Limit, OfPool, Yes

_SCRIPT, _ARCHIVE = ".py", ".zip"
_MAIN = "__main__.py"

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Pool = Annotated[str, typer.Option(help="The pool whose jobs can use it.")]
Script = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, show_default=False)
]


@app.command()
def push(
    context: typer.Context,
    file: Script,
    pool: Pool = "default",
    name: Annotated[
        str | None,
        typer.Option(help="Name for jobs (target.handler). [dim]Default: the file's name[/]"),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="KEYFILE",
            help="Sign it with this private key, for pools with trustedSigners.",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="The tenant that the signature is for. [dim]Default: your own[/]"),
    ] = None,
) -> None:
    """Upload a job script: a .py file, or a .zip archive with __main__.py at the top level. Jobs
    that name it use the new version from their next run; jobs pinned to a digest do not change.

    The name of an archive includes its extension: target.handler is report.zip.

    [bold]Examples[/]
      nextfire scripts push examples/hello.py
      nextfire scripts push build/report.py --pool batch --name nightly-report
      nextfire scripts push build/app.zip
      nextfire scripts push build/report.py --sign release.pem
    """
    caller = session.of(context)
    handler = _handler(file, name)
    if tenant is not None and sign is None:
        raise typer.BadParameter("goes with --sign", param_hint="--tenant")
    if warning := _check(file):
        caller.say(warning)
    source = file.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    signature = None
    if sign is not None:
        from nextfire_cli import signing

        signature = signing.sign(
            sign,
            tenant=tenant or caller.tenant(),
            pool=pool,
            name=script_name(handler),
            sha256=digest,
        )
    upload = caller.client().push_script(handler, source, pool=pool, signature=signature)
    shown = {name: upload.document[name] for name in ("url", "pool", "handler")}
    shown |= {"sha256": digest, "signed": signature is not None}
    lines = (upload.url, f"{handler}@sha256:{digest}")
    caller.show(shown, Text("\n".join(map(render.escaped, lines))))


@app.command()
def keygen(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
) -> None:
    """Generate a key pair for signing scripts: writes the private key to FILE and prints the
    public key. Add the public key to the pool's trustedSigners, and restrict FILE to those who
    release scripts.

    [bold]Examples[/]
      nextfire scripts keygen release.pem
    """
    from nextfire_cli import signing

    public = signing.make_key(file)
    session.of(context).show({"publicKey": public, "file": str(file)}, Text(public))


@app.command()
def lock(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, writable=True, show_default=False
        ),
    ],
    python: Annotated[
        str, typer.Option(help="The oldest Python version that will run it.")
    ] = "3.11",
) -> None:
    """Lock a script's dependencies: write the version and SHA-256 hashes of every package that
    its inline dependencies need into it. Executors install exactly those.

    [bold]Examples[/]
      nextfire scripts lock report.py
    """
    from nextfire.adapters.packages.inline_metadata import parse_inline_metadata
    from nextfire_cli import signing

    if file.suffix == _ARCHIVE:
        raise CliError(
            f"{file} is an archive, which has no lock: its packages are in it.",
            "Put them there with pip install --target; see docs/guide/scripts.md.",
        )
    source = file.read_bytes()
    try:
        dependencies = parse_inline_metadata(source).dependencies
    except ValueError as error:
        raise CliError(f"{file} cannot be locked: {error}.") from error
    lines = signing.resolve(list(dependencies), python) if dependencies else []
    written = signing.locked(source, lines)
    parse_inline_metadata(written)
    _replace(file, written)
    count = f"{len(lines)} package{'' if len(lines) == 1 else 's'}"
    session.of(context).show({"file": str(file), "locked": lines}, Text(count))


@app.command("list")
def list_(
    context: typer.Context,
    pool: OfPool = None,
    limit: Limit = 100,
) -> None:
    """List the uploaded scripts.

    [bold]Example[/]
      nextfire scripts list --pool batch
    """
    caller = session.of(context)
    items, more = first(limit, partial(caller.client().list_scripts, pool=pool))
    caller.show({"items": items}, render.scripts(items))
    caller.say_if_more(limit, more=more)
    if not items:
        say_if_unknown(caller, pool)


@app.command()
def versions(
    context: typer.Context,
    handler: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    pool: Pool = "default",
    limit: Limit = 20,
) -> None:
    """List the versions of a script, newest first.

    [bold]Examples[/]
      nextfire scripts versions report
    """
    caller = session.of(context)
    ask = partial(caller.client().list_script_versions, pool, handler)
    items, more = first(limit, ask)
    caller.show({"items": items}, render.versions(items))
    caller.say_if_more(limit, more=more)


@app.command()
def delete(
    context: typer.Context,
    handler: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    pool: Pool = "default",
    yes: Yes = False,
) -> None:
    """Delete a script of a pool. Runs of jobs that name it end DEAD until it is pushed again.

    Its versions remain in a bucket with versioning, as those of the stack have it: jobs pinned to a
    digest still run. On AWS with your own AWS credentials, which need s3:DeleteObject on it.

    [bold]Examples[/]
      nextfire scripts delete report
      nextfire scripts delete app.zip --pool batch --yes
    """
    caller = session.of(context)
    found = (each.document for each in caller.client().scripts(pool=pool))
    script = next((each for each in found if each["handler"] == handler), None)
    if script is None:
        raise MissingError(
            f"The pool {pool} has no script {handler!r}.",
            f"See nextfire scripts list --pool {pool}. The name of an archive ends in {_ARCHIVE}.",
        )
    question = (
        f"Delete the script {handler} of the pool {pool}? Runs of jobs that name it will fail."
    )
    confirm(caller, question, yes=yes)
    stack = caller.stack()
    if stack is not None and stack.kind == "embedded":
        from nextfire.adapters.files.script_versions import ScriptVersions
        from nextfire.adapters.files.stack_folder import SCRIPTS

        with reported():
            versions = ScriptVersions(stack.key_file.parent / SCRIPTS)
            versions.delete(script["url"].removeprefix("s3://"))
    else:
        caller.account().delete_object(*split_url(script["url"]))
    caller.show({"handler": handler, "pool": pool}, Text(f"Deleted script {handler}."))


def _replace(file: Path, content: bytes) -> None:
    """Replace what *file* contains.

    Raises:
        CliError: It cannot be written, and is unchanged.
    """
    place = file.resolve()
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        shutil.copymode(place, fresh)
        fresh.replace(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise CliError(f"{file} cannot be written: {error.strerror}.") from error


def _handler(file: Path, name: str | None) -> str:
    """The name of the script in *file* for jobs.

    Raises:
        typer.BadParameter: Not a valid script name.
    """
    archive = file.suffix.lower() == _ARCHIVE
    handler = name or file.stem
    if archive and not handler.endswith(_ARCHIVE):
        handler += _ARCHIVE
    try:
        if "@" in handler:
            raise typer.BadParameter(
                "a digest belongs to a job, not to an upload: push prints the digest",
                param_hint="--name",
            )
        Target(handler=handler)
        check_no_ending("--name", handler)
    except ValidationError as error:
        raise typer.BadParameter(
            f"{handler!r} is not a script name: use at most 128 letters, digits, `_`, `.` and `-`, "
            "beginning with a letter or a digit.",
            param_hint="--name",
        ) from error
    except InvalidInputError as error:
        raise typer.BadParameter(
            f"{handler!r} {error.problem}. {error.remedy}", param_hint="--name"
        ) from error
    if handler.endswith(_ARCHIVE) and not archive:
        raise typer.BadParameter(f"{file.name} is not a {_ARCHIVE} archive", param_hint="--name")
    return handler


def _check(file: Path) -> str | None:
    """Return a warning about the script in *file*, or None.

    Raises:
        CliError: Executors would reject the script.
    """
    from nextfire.adapters.packages.inline_metadata import parse_inline_metadata

    try:
        size = file.stat().st_size
        if size > MAX_SCRIPT_BYTES:
            raise CliError(
                f"{file} has {size} bytes, more than {MAX_SCRIPT_BYTES}: no executor takes it.",
                "Keep data out of it, in S3; and name packages inline (PEP 723) where the pool\n"
                "installs them.",
            )
        if file.suffix.lower() == _ARCHIVE:
            with zipfile.ZipFile(file) as archive:
                if _MAIN not in archive.namelist():
                    raise CliError(
                        f"{file} has no {_MAIN} at its top, with which Python begins.",
                        f"Put one in: zip {file.name} {_MAIN}. Not in a folder within.",
                    )
            return None
        if zipfile.is_zipfile(file):
            raise CliError(f"{file} is an archive.", f"Let its name end in {_ARCHIVE}.")
        if file.suffix.lower() != _SCRIPT:
            raise CliError(
                f"{file} is not a script.",
                f"Let its name end in {_SCRIPT}, an archive's in {_ARCHIVE}.",
            )
        if size == 0:
            raise CliError(f"{file} is empty.", "Write the script, then push it.")
        parse_inline_metadata(file.read_bytes())
        return _does_not_compile(file)
    except ValueError as error:
        raise CliError(f"{file} cannot be run: {error}.", "Fix the block, or remove it.") from error
    except zipfile.BadZipFile as error:
        raise CliError(f"{file} is not a zip archive: {error}.", "Create it again.") from error
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from error


def _does_not_compile(file: Path) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(file.read_bytes(), file.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        version = ".".join(map(str, sys.version_info[:2]))
        return f"Warning: {file} does not compile with Python {version}: {error}."
    return None
