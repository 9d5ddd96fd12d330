"""A test kit for jobs: the whole scheduler in memory, under simulated time.

    from nextfire.testing import Stack

    NIGHTLY = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "report"}}

    def test_the_report_runs_every_night() -> None:
        with Stack(start="2027-01-01T00:00:00Z") as stack:
            stack.script("report", lambda run: {"rows": 3})
            stack.put("nightly", NIGHTLY)
            stack.advance(days=7)
            assert len(stack.runs("nightly", state="SUCCEEDED")) == 7

The pytest fixture `nextfire_stack` is such a stack. Install ``nextfire[testing]``. The how-to is
docs/guide/testing-jobs.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextfire.testing.calls import AwsError, HttpAnswer, HttpRequest
    from nextfire.testing.script_run import ScriptRun
    from nextfire.testing.stack import Stack

__all__ = ["AwsError", "HttpAnswer", "HttpRequest", "ScriptRun", "Stack"]

_HOMES = {
    "AwsError": "calls",
    "HttpAnswer": "calls",
    "HttpRequest": "calls",
    "ScriptRun": "script_run",
    "Stack": "stack",
}

if not TYPE_CHECKING:  # a type checker would accept every attribute of this package

    def __getattr__(name: str) -> Any:
        # Imported on first use: pytest imports the plugin of this package at every start.
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        try:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            remedy = f"{error}. Install it: pip install 'nextfire[testing]'"
            raise ModuleNotFoundError(remedy, name=error.name) from error

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
