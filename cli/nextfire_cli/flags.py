"""The flags that define a job: a table with one row per flag.

The model gives what a row leaves out: type, bounds, choices, default and help (the description of
the field).
"""

from nextfire.domain.schedule import ScheduleType
from nextfire_cli.flag_kinds import (
    AUTH,
    AWS_ACTION,
    AWS_INPUT,
    BODY,
    DATES,
    DURATION,
    HEADERS,
    JSON,
    LABELS,
    METHOD,
    MILLISECONDS,
    PARAMETERS,
    PARENTS,
    PERIOD,
    SECONDS,
    SECONDS_OR_NONE,
    SECRETS,
    SIGNERS,
    SUCCESS,
    TEXTS,
    URL,
    Flag,
)

_ONE = "When (one of them)"
_WITHIN = "When, more closely"
_AFTER = "After other jobs"
_RETRIES = "What follows a failed attempt"
_VARIABLES = "What the script finds in its environment"
_CALLBACK = "HTTP callback, instead of a script"
_AWS = "AWS API call, instead of a script"

FLAGS = (
    Flag(
        "--cron",
        "schedule",
        "Repeat by a cron expression: minute, hour, day of month, month, day of week.",
        group=_ONE,
        metavar="EXPR",
        type=ScheduleType.CRON,
    ),
    Flag(
        "--at",
        "schedule",
        "Run once at this instant: 2026-05-24T10:00:00Z. Without an offset: in --timezone.",
        group=_ONE,
        metavar="INSTANT",
        type=ScheduleType.ONCE,
    ),
    Flag(
        "--in",
        "schedule",
        "Run once after this delay: 5s, 90m, 1h30m, 2d or PT5S.",
        kind=DURATION,
        group=_ONE,
        type=ScheduleType.DELAY,
    ),
    Flag(
        "--every",
        "schedule",
        "Repeat at this interval: 10s, 90m, 1h30m or PT90M.",
        kind=PERIOD,
        group=_ONE,
        type=ScheduleType.INTERVAL,
    ),
    Flag(
        "--date",
        "schedule",
        "Run on these dates; repeat the option for each. Format as --at; without a time: midnight.",
        kind=DATES,
        group=_ONE,
        type=ScheduleType.DATES,
    ),
    Flag("--timezone", "timezone", metavar="ZONE"),
    Flag(
        "--start-at",
        "startAt",
        "First instant at which it may run; --every counts from it. Format as --at.",
        group=_WITHIN,
        metavar="INSTANT",
    ),
    Flag(
        "--end-at",
        "endAt",
        "Last instant at which it may run. Format as --at.",
        group=_WITHIN,
        metavar="INSTANT",
    ),
    Flag(
        "--except",
        "exceptDates",
        "Date without occurrences in --timezone, such as a holiday: 2030-12-25. May be repeated.",
        group=_WITHIN,
        metavar="DATE",
    ),
    Flag("--max-runs", "maxRuns", group=_WITHIN),
    Flag("--dst", "dst", group=_WITHIN),
    Flag(
        "--jitter",
        "jitterSec",
        "Delay each run by a random time up to this: 30s, 10m.",
        kind=SECONDS,
        group=_WITHIN,
        default="none",
    ),
    Flag(
        "--after",
        "after",
        "Run after the runs of this job; repeat the option for each. Without a schedule, the job "
        "runs once for each of their logical times.",
        kind=PARENTS,
        group=_AFTER,
    ),
    Flag("--trigger-rule", "triggerRule", group=_AFTER),
    Flag(
        "--join-timeout",
        "joinTimeoutSec",
        "How long a run waits for its parents: 10m, 2h. Then it is SKIPPED.",
        kind=SECONDS,
        default="1d",
        group=_AFTER,
    ),
    Flag(
        "--deadline",
        "deadlineSec",
        "How long after the logical time of its sequence a run may start: 10m, 2h; "
        "[bold]none[/] removes it.",
        kind=SECONDS_OR_NONE,
        group=_AFTER,
        default="none",
    ),
    Flag(
        "--handler",
        "target.handler",
        "Name of the script in the pool. @sha256:DIGEST pins it to those bytes "
        "(printed by [bold]scripts push[/]).",
        metavar="NAME[@sha256:DIGEST]",
    ),
    Flag("--pool", "target.pool"),
    Flag("--payload", "payload", "Input of the script; [bold]@-[/] reads stdin.", kind=JSON),
    Flag("--name", "name"),
    Flag(
        "--timeout",
        "timeoutSec",
        "Timeout of one attempt: seconds, or 90s, 10m, PT10M.",
        kind=SECONDS,
    ),
    Flag("--max-attempts", "retryPolicy.maxAttempts", group=_RETRIES),
    Flag(
        "--backoff",
        "retryPolicy.backoff",
        "How the delay grows between attempts.",
        group=_RETRIES,
    ),
    Flag(
        "--retry-delay",
        "retryPolicy.initialDelayMs",
        "Delay before the second attempt: 0.5s, 10s, 5m.",
        kind=MILLISECONDS,
        group=_RETRIES,
    ),
    Flag(
        "--max-retry-delay",
        "retryPolicy.maxDelayMs",
        "Maximum delay between attempts.",
        kind=MILLISECONDS,
        default="1h, or --retry-delay if that is longer",
        group=_RETRIES,
    ),
    Flag("--retry-jitter", "retryPolicy.jitter", group=_RETRIES),
    Flag(
        "--retry-on",
        "retryPolicy.retryOn.states",
        "Retry only after these outcomes; repeat the option for each.",
        group=_RETRIES,
        default="all",
    ),
    Flag(
        "--retry-exit-code",
        "retryPolicy.retryOn.exitCodes",
        group=_RETRIES,
        metavar="N",
        default="any",
    ),
    Flag("--env", "target.env", "May be repeated.", kind=TEXTS, group=_VARIABLES),
    Flag(
        "--secret",
        "target.env",
        "Secret in Secrets Manager, nextfire/pools/<pool>/<tenant>/SECRET. KEY: one member of a "
        "JSON object.",
        kind=SECRETS,
        group=_VARIABLES,
    ),
    Flag(
        "--parameter",
        "target.env",
        "Parameter in the SSM Parameter Store, /nextfire/pools/<pool>/<tenant>/PARAMETER.",
        kind=PARAMETERS,
        group=_VARIABLES,
    ),
    Flag(
        "--http",
        "target.http",
        "URL to call; the payload is the body. Needs a pool of calls: [bold]--pool calls[/].",
        kind=URL,
        group=_CALLBACK,
    ),
    Flag("--method", "target.http", "Method.", kind=METHOD, group=_CALLBACK, default="POST"),
    Flag(
        "--header",
        "target.http",
        "Header without secrets. May be repeated.",
        kind=HEADERS,
        group=_CALLBACK,
    ),
    Flag(
        "--body",
        "target.http",
        "Body, a template: `{{payload.id}}`, `{{run.executionId}}`.",
        kind=BODY,
        group=_CALLBACK,
        default="the payload",
    ),
    Flag(
        "--auth",
        "target.http",
        'Authentication, such as \'{"type": "bearer", "token": {"secret": "NAME"}}\'.',
        kind=AUTH,
        group=_CALLBACK,
        default="none",
    ),
    Flag(
        "--sign",
        "target.http",
        "Secret to sign with (Standard Webhooks); two during a rotation.",
        kind=SIGNERS,
        group=_CALLBACK,
    ),
    Flag(
        "--success",
        "target.http",
        "Status codes that are a success. May be repeated.",
        kind=SUCCESS,
        group=_CALLBACK,
        default="2xx",
    ),
    Flag(
        "--aws",
        "target.aws",
        "API to call, such as sqs:SendMessage, with the job role of the pool.",
        kind=AWS_ACTION,
        group=_AWS,
    ),
    Flag(
        "--input",
        "target.aws",
        "Parameters of the API, a template as for --body.",
        kind=AWS_INPUT,
        group=_AWS,
    ),
    Flag("--priority", "priority"),
    Flag("--misfire", "misfire.policy"),
    Flag(
        "--relevancy-window",
        "misfire.relevancyWindowSec",
        "Skip a run that would start later than this after it was due: 1 s to 30 days, "
        "e.g. 30s, 10m; [bold]none[/] removes it.",
        kind=SECONDS_OR_NONE,
        default="none",
    ),
    Flag("--overlap", "overlap"),
    Flag("--max-parallel", "maxParallel"),
    Flag("--label", "labels", "May be repeated.", kind=LABELS),
)

CALL_FLAGS = [
    flag
    for flag in FLAGS
    if (flag.path == "target.http" and flag.name != "--http")
    or flag.name in {"--pool", "--payload", "--timeout", "--label"}
]
"""The flags that define a callback, except its URL; and labels, which some API keys require."""

WITHOUT_FLAG = {
    "type": "The flag for `schedule` selects it: --cron, --at, ..., or --after without one.",
    "target.script": "Only in a document (--file): --handler names a script of the pool.",
}
"""Fields that no flag sets, and why."""

WHEN = ", ".join(flag.name for flag in FLAGS if flag.path == "schedule")
"""A job has at most one of these flags."""
