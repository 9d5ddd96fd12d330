"""Items in tables and messages in queues, valid and damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.adapters.dynamodb.due_items import decode_entry
from nextfire.domain.due import DueEntry, StoredEntry
from nextfire.domain.ids import run_id
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.run import Run
from tests.fuzz import items
from tests.fuzz.cases import Kept, fuzzed, kept
from tests.fuzz.checks import (
    IN_MEMORY,
    check_control_item,
    check_due_item,
    check_endpoint_item,
    check_job_item,
    check_kept,
    check_message,
    check_round_trip_of_a_job,
    check_round_trip_of_a_run,
    check_run_item,
)
from tests.fuzz.damage import damaged, odd_texts
from tests.fuzz.items import Item


@pytest.mark.parametrize("case", kept(*IN_MEMORY), ids=lambda case: case.name)
def test_corpus_cases_pass_their_checks(case: Kept) -> None:
    check_kept(case, IN_MEMORY[case.kind])


def test_every_stored_format_of_every_version_is_kept() -> None:
    old = [case for case in kept(*IN_MEMORY) if case.decodes]

    assert {case.kind for case in old} == {"message", "due item", "job item", "run item"}


# Round trips


@fuzzed()
@given(items.jobs())
def test_a_job_comes_back_as_it_was(job: Job) -> None:
    check_round_trip_of_a_job(job)
    check_job_item(items.job_item(job))


@fuzzed()
@given(items.entries())
def test_an_entry_comes_back_as_it_was(entry: DueEntry) -> None:
    found = decode_entry(items.due_item(entry))

    assert isinstance(found, StoredEntry)
    assert found.entry == entry


@fuzzed()
@given(items.runs())
def test_a_run_comes_back_as_it_was(run: Run) -> None:
    check_round_trip_of_a_run(run, items.run_item(run))
    check_run_item(items.run_item(run))


@st.composite
def messages(draw: st.DrawFn) -> RunMessage:
    job = draw(items.job_keys)
    return RunMessage(
        tenant=job.tenant,
        job_id=job.job_id,
        run_id=run_id(draw(items.uids), draw(items.instants)),
        dispatch=draw(st.integers(1, 10**9)),
        dispatched_at=draw(items.instants),
        exclusive=draw(st.booleans()),
        reason=draw(items.texts),
    )


@fuzzed()
@given(messages())
def test_a_message_comes_back_as_it_was(message: RunMessage) -> None:
    assert decode_message(message.encode()) == message


# Damage


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Texts that are nearly messages."""
    document: Any = json.loads(draw(messages()).encode())
    name = draw(st.sampled_from([*sorted(document), "unknown"]))
    document[name] = draw(items.payloads | odd_texts | st.floats())
    text = json.dumps(document)
    return draw(st.sampled_from([text, text[:-1], f"{text}{text}", f"\ufeff{text}", f" {text} "]))


@fuzzed()
@given(bodies() | st.text() | odd_texts)
def test_any_text_is_a_message_or_refused(body: str) -> None:
    check_message(body)


@fuzzed()
@given(damaged(items.entries().map(items.due_item), "bucket", "entry"))
def test_any_due_item_is_an_entry_or_broken(item: Item) -> None:
    check_due_item(item)


@fuzzed()
@given(damaged(items.jobs().map(items.job_item), "tenant", "job_id"))
def test_any_job_item_is_a_job_or_undecodable(item: Item) -> None:
    check_job_item(item)


@fuzzed()
@given(damaged(items.runs().map(items.run_item), "job", "run_id"))
def test_any_run_item_is_a_run_or_undecodable(item: Item) -> None:
    check_run_item(item)


@fuzzed()
@given(damaged(st.sampled_from([*items.LEASES, *items.CURSORS, *items.AUDITS]), "id"))
def test_any_control_item_is_read_or_broken(item: Item) -> None:
    check_control_item(item)


@fuzzed()
@given(damaged(st.sampled_from(items.ENDPOINTS), "owner", "destination"))
def test_any_endpoint_item_is_an_endpoint_or_undecodable(item: Item) -> None:
    check_endpoint_item(item)
