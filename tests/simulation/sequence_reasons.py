"""The reasons for which runs of sequences are SKIPPED, as their records show them."""

from __future__ import annotations

import re

from nextfire.domain.run import Run, RunState

BY_RULE = re.compile(
    r"trigger rule (\w+): (.*) (SUCCEEDED|FAILED|SKIPPED)|.*no parent failed|.*no runs .*"
)
BY_SETUP = re.compile(r"setup (.*) (FAILED|SKIPPED)")
BY_TIMEOUT = re.compile(r"joinTimeoutSec is (\d+) s(?:, deadlineSec is (\d+) s)?; missing: (.*)")
BY_WATCHERS = re.compile(r"misfire policy|relevancyWindowSec|during a pause|found by the audit")
BY_EXECUTORS = ("picked up", "overlap policy")
_MORE = re.compile(r" and \d+ more$")


def skipped_by_rule(run: Run) -> bool:
    """Whether its trigger rule, or a setup, skipped the run."""
    reason = run.reason or ""
    by_rule = BY_RULE.fullmatch(reason) or BY_SETUP.fullmatch(reason)
    return run.state is RunState.SKIPPED and bool(by_rule)


def parents_in(text: str) -> list[str]:
    """The parents that a reason names."""
    return _MORE.sub("", text).split(", ")
