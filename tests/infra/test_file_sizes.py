"""A file has one idea and at most 350 lines, unless it is a table."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = 350
TABLES = {
    "tests/unit/test_clock_changes.py": "cases by time zone, and what is due in each",
    "tests/unit/test_first_day_messages.py": "what new users typed, and the message now",
    "tests/integration/test_error_mapping.py": "each call of each adapter",
}
"""Files that are a table of cases, by what their rows are."""
TO_SPLIT = {
    "tests/crashes/cloud.py",
    "tests/crashes/flows.py",
    "tests/crashes/stack.py",
    "tests/e2e/test_callbacks.py",
    "tests/e2e/test_iam.py",
    "tests/e2e/test_isolation.py",
    "tests/e2e/test_path.py",
    "tests/fuzz/items.py",
    "tests/infra/test_pool_access.py",
    "tests/infra/test_worker_service.py",
    "tests/integration/deployment.py",
    "tests/integration/test_api_endpoints.py",
    "tests/integration/test_api_isolation.py",
    "tests/integration/test_aws_faults.py",
    "tests/integration/test_pipelines.py",
    "tests/integration/test_requests.py",
    "tests/integration/test_shards_and_groups.py",
    "tests/integration/test_watcher.py",
    "tests/judgement.py",
    "tests/model/dispatch.py",
    "tests/model/run.py",
    "tests/security/test_cpu_per_byte.py",
    "tests/security/test_egress_proxy.py",
    "tests/security/test_isolation.py",
    "tests/security/test_masking.py",
    "tests/security/test_packages.py",
    "tests/simulation/flows.py",
    "tests/simulation/history.py",
    "tests/simulation/sequence_judge.py",
    "tests/simulation/system.py",
    "tests/simulation/wire.py",
    "tests/soak/accounting.py",
    "tests/soak/drive.py",
    "tests/unit/cli/test_cli_keys.py",
    "tests/unit/test_breaker.py",
    "tests/unit/test_keys.py",
    "tests/unit/test_launcher.py",
    "tests/unit/test_manage_runs.py",
    "tests/unit/test_script_runner.py",
    "tests/unit/test_sleeping_watchers.py",
}
"""Longer files from before the rule. Remove a file from here when it is split; add none."""


def long_files() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.splitlines()]
    return {
        str(file.relative_to(ROOT))
        for file in files
        if file.is_file() and len(file.read_text(encoding="utf-8").splitlines()) > LINES
    }


def test_files_are_short() -> None:
    found = long_files() - TABLES.keys() - TO_SPLIT

    assert not found, f"over {LINES} lines: split by idea, or list as a table with its reason"


def test_every_exception_is_needed() -> None:
    assert not (TABLES.keys() | TO_SPLIT) - long_files(), (
        "short enough now: remove it from the list"
    )
