"""Synthesizes the app once for each target, for the tests to check."""

import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# jsii, below the CDK, runs the first `node` that it finds: use the one of the virtual environment.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ["PATH"]])

import json

from aws_cdk import App

from infra.app import ROOT, build_app
from infra.build import Build
from infra.stack import NextfireStack

Template = dict[str, Any]
_staging = tempfile.TemporaryDirectory(prefix="test-staging-")


class _OneBuild(Build):
    """Stages each code once."""

    first_party_layer = cache(Build.first_party_layer)
    third_party_layer = cache(Build.third_party_layer)


@cache
def _build(root: Path) -> Build:
    """The code of all syntheses of this process, which differ in their settings only."""
    return _OneBuild(root, staging=Path(_staging.name), cache=root / ".nextfire" / "build")


def context_of_project() -> dict[str, Any]:
    """The context that cdk.json gives to every synthesis."""
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    return context


def synthesize(
    outdir: Path, context: Mapping[str, Any]
) -> tuple[App, NextfireStack, Template, Path]:
    """Build the app with *context* on top of the project's own. Returns the template and file."""
    settings = {**context_of_project(), "aws:cdk:disable-asset-staging": True, **context}
    app = App(outdir=str(outdir / "cdk.out"), context=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("infra.app.Build", lambda root, **_: _build(root))
        stack = build_app(app, staging=outdir)
    file = Path(app.synth().get_stack_by_name(stack.stack_name).template_full_path)
    template: Template = json.loads(file.read_text())
    return app, stack, template, file


@pytest.fixture(scope="session")
def template_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template for AWS, with a pool of each kind."""
    pools = {
        "default": {"executor": "lambda", "batchSize": 10},
        "long-jobs": {"executor": "worker"},
    }
    return synthesize(tmp_path_factory.mktemp("aws"), {"pools": pools, "groups": 2})[3]


@pytest.fixture(scope="session")
def template(template_file: Path) -> Template:
    loaded: Template = json.loads(template_file.read_text())
    return loaded


@pytest.fixture(scope="session")
def local_template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return synthesize(tmp_path_factory.mktemp("local"), {"target": "local"})[2]
