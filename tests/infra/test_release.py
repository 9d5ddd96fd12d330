"""The release: its inputs are pinned, and each job has only the permissions that it needs."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from uv import find_uv_bin

from infra.app import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCKERFILE = ROOT / "functions" / "worker" / "Dockerfile"
_PERMISSIONS = {
    "check": {"contents": "read"},
    "packages": {"contents": "read"},
    "image": {"contents": "read", "packages": "write"},
    "publish": {"contents": "write", "id-token": "write", "attestations": "write"},
    "pypi": {"id-token": "write"},
}


def load(workflow: Path) -> dict[str, Any]:
    # YAML 1.1 parses the key `on` as a boolean.
    loaded: dict[str, Any] = yaml.safe_load(workflow.read_text().replace("\non:", '\n"on":'))
    return loaded


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    return load(ROOT / ".github" / "workflows" / "release.yml")


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def unpinned(text: str) -> list[str]:
    """The actions and images in the workflow *text* that are not pinned to an immutable version."""
    actions = re.findall(r"^[ -]*uses: *(.*)$", text, re.MULTILINE)
    pinned = re.compile(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    images = re.findall(r"^ *(?:image|container): *(\S.*)$", text, re.MULTILINE)
    images = [each for each in images if not each.startswith("${{ steps.build.outputs.name }}@")]
    return [
        *(each for each in actions if not pinned.fullmatch(each)),
        *(each for each in images if "@sha256:" not in each),
    ]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    assert "uses:" in workflow.read_text()
    assert not unpinned(workflow.read_text())


@pytest.mark.parametrize(
    "line",
    [
        "      - uses: actions/checkout@v7",
        "        uses: actions/checkout@3d3c42e # v7.0.1",
        "        uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1",
        "        container: python:3.13",
    ],
)
def test_unpinned_actions_and_images_are_found(line: str) -> None:
    assert unpinned(f"jobs:\n{line}\n")


def test_one_commit_is_one_version() -> None:
    found = {
        tuple(each)
        for workflow in WORKFLOWS
        for each in re.findall(r"uses: (\S+)@([0-9a-f]+) # (\S+)", workflow.read_text())
    }

    assert len({action for action, _, _ in found}) == len(found)


def test_jobs_may_do_what_they_need(release: dict[str, Any]) -> None:
    assert release["permissions"] == {}
    assert {name: job["permissions"] for name, job in release["jobs"].items()} == _PERMISSIONS


def test_code_of_the_project_never_runs_where_a_release_can_be_written(
    release: dict[str, Any],
) -> None:
    """The job that attests and publishes may not build; the job that builds may not publish."""
    for step in release["jobs"]["publish"]["steps"]:
        assert "checkout" not in step.get("uses", "")
        assert not re.search(r"make|uv |\.ci|python", step.get("run", ""))
    assert set(release["jobs"]["publish"]["needs"]) == {"packages", "image"}
    assert release["jobs"]["packages"]["needs"] == release["jobs"]["image"]["needs"] == "check"


def test_the_index_trusts_the_workflow_and_no_secret_is_stored(release: dict[str, Any]) -> None:
    """Trusted publishing: the action exchanges the identity of the job for a token."""
    job = release["jobs"]["pypi"]
    download, only_packages, upload = job["steps"]

    assert all("secrets." not in workflow.read_text() for workflow in WORKFLOWS)
    assert (job["needs"], job["environment"]) == ("publish", "pypi")
    assert download["with"] == {"name": "packages", "path": "dist"}
    assert only_packages["run"] == "rm dist/*.cdx.json"  # the index takes wheels and sdists
    assert upload["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "with" not in upload


def test_only_a_version_tag_releases(release: dict[str, Any]) -> None:
    assert release["on"] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    runs = [step.get("run", "") for step in release["jobs"]["check"]["steps"]]
    assert ".ci/run" in runs


def test_values_of_others_are_not_put_into_shell_commands(release: dict[str, Any]) -> None:
    """A tag or an output could contain a command: pass them in the environment."""
    for step in steps(release):
        assert "${{" not in step.get("run", "")


def test_checkouts_keep_no_token(release: dict[str, Any]) -> None:
    for step in steps(release):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_packages_and_image_have_an_sbom_and_a_provenance(release: dict[str, Any]) -> None:
    jobs = release["jobs"]
    packages = " ".join(step.get("run", "") for step in jobs["packages"]["steps"])
    [image] = [step for step in jobs["image"]["steps"] if "sbom-action" in step.get("uses", "")]
    attested = [
        step["with"]
        for step in jobs["publish"]["steps"]
        if "attest-build-provenance" in step.get("uses", "")
    ]

    assert "uv export --frozen --format cyclonedx1.5" in packages
    assert image["with"]["format"] == "cyclonedx-json"
    assert image["with"]["image"].endswith("@${{ steps.build.outputs.digest }}")
    assert re.fullmatch(r"v\d+\.\d+\.\d+", image["with"]["syft-version"])
    assert attested == [
        {"subject-path": "dist/*"},
        {
            "subject-name": "${{ needs.image.outputs.name }}",
            "subject-digest": "${{ needs.image.outputs.digest }}",
        },
    ]


def test_sbom_of_the_packages_names_what_they_need(tmp_path: Path, release: dict[str, Any]) -> None:
    """The command of the workflow, without its folder and its file."""
    [command] = [step["run"] for step in steps(release) if "uv export" in step.get("run", "")]
    arguments = command.replace("\\\n", " ").split()[1:]
    file = tmp_path / "sbom.json"
    arguments[-1] = str(file)

    subprocess.run([find_uv_bin(), *arguments], cwd=ROOT, check=True, capture_output=True)

    sbom = json.loads(file.read_text())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
    named = {each["name"] for each in sbom["components"]}
    assert {"boto3", "pydantic", "croniter", "httpx2", "typer"} <= named
    assert not named & {"pytest", "ministack", "aws-cdk-lib"}
    assert all(each["purl"].startswith("pkg:pypi/") for each in sbom["components"])


def test_images_are_based_on_digests() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE)

    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases[0])


def requirements(name: str) -> dict[str, tuple[str, set[str]]]:
    """By name, the version and the hashes in a requirements file."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {}
    for line in lines:
        package, version = re.match(r"([\w-]+)==([\w.]+)", line).groups()  # type: ignore[union-attr]
        found[package] = (version, set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", line)))
    return found


def test_uv_is_the_one_of_the_lock_file_everywhere() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    [uv] = [package for package in lock["package"] if package["name"] == "uv"]
    hashes = {wheel["hash"] for wheel in uv["wheels"]}

    assert requirements("requirements-uv.txt") == {"uv": (uv["version"], hashes)}
    for user in (DOCKERFILE, ROOT / "Makefile"):
        text = user.read_text()
        assert "--require-hashes -r" in text
        assert "requirements-uv.txt" in text
        assert "uv==" not in text


def test_build_requirements_are_pinned_by_hashes(release: dict[str, Any]) -> None:
    found = requirements("requirements-build.txt")
    [build] = [step["run"] for step in steps(release) if "uv build" in step.get("run", "")]

    assert "hatchling" in found
    assert all(hashes for _, hashes in found.values())
    assert "--build-constraints requirements-build.txt --require-hashes" in build
