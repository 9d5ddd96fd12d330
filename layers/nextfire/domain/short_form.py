"""The short form of a job document: a CRON job, some of whose fields have other names."""

from __future__ import annotations

from collections.abc import Mapping

LONG_NAMES: Mapping[str, str] = {"taskId": "jobId", "cron": "schedule", "params": "payload"}
"""Field names in the long form, by those in the short form."""
SHORT_NAMES: Mapping[str, str] = {long: short for short, long in LONG_NAMES.items()}
