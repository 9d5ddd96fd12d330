"""Scripts: uploaded directly to S3 with a URL for that upload only, and listed with versions."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from functions.api import services as api
from nextfire.adapters.dynamodb.cursors import encode_cursor
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.usecases import check_definition
from nextfire.usecases.manage_scripts import UPLOAD_LIFE
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.deployment import CALLS, OTHER_TENANT, TENANT, Deployment

SOURCE = b"print('hi')\n"


def asked(handler: str = "report", source: bytes = SOURCE, **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(source).hexdigest()
    return {"handler": handler, "size": len(source), "sha256": digest, **more}


def push(system: Deployment, handler: str, source: bytes = SOURCE, **more: Any) -> dict[str, Any]:
    """Upload the script as the API's answer says. Returns that answer."""
    answer = system.call("POST", "/v1/scripts/uploads", asked(handler, source), **more)
    assert answer.status == 201, answer.document
    document: dict[str, Any] = answer.document
    put = requests.put(document["uploadUrl"], source, headers=document["headers"], timeout=9)
    assert put.ok, put.text
    return document


def listed(system: Deployment, tenant: str = TENANT, **query: str) -> list[str]:
    found = []
    while True:
        answer = system.call("GET", "/v1/scripts", query=query, tenant=tenant)
        assert answer.status == 200, answer.document
        found += [f"{each['pool']}/{each['handler']}" for each in answer.document["items"]]
        if "cursor" not in answer.document:
            return found
        query["cursor"] = answer.document["cursor"]


def test_what_is_uploaded_is_what_a_job_runs(system: Deployment) -> None:
    document = push(system, "report")

    assert document["url"] == f"s3://{system.bucket}/pools/default/{TENANT}/report.py"
    uploaded = system.objects.get_object(
        Bucket=system.bucket, Key=f"pools/default/{TENANT}/report.py"
    )
    assert uploaded["Body"].read() == SOURCE
    [item] = system.call("GET", "/v1/scripts").document["items"]
    assert (
        item.items()
        >= {
            "pool": "default",
            "handler": "report",
            "url": document["url"],
            "size": len(SOURCE),
        }.items()
    )


def test_the_url_is_for_a_quarter_of_an_hour_and_for_just_that(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(parse_instant("2026-05-24T10:00:00Z"))
    monkeypatch.setattr(api, "clock", clock)

    document = system.call("POST", "/v1/scripts/uploads", asked("report.zip")).document

    url = urlsplit(document["uploadUrl"])
    query = parse_qs(url.query)
    assert url.path == f"/pools/default/{TENANT}/report.zip"
    assert query["X-Amz-Expires"] == ["900"]
    assert timedelta(minutes=15) == UPLOAD_LIFE
    assert document["expiresAt"] == isoformat(clock.now() + UPLOAD_LIFE)
    signed = set(query["X-Amz-SignedHeaders"][0].split(";"))
    assert signed == {"host", *map(str.lower, document["headers"])}
    assert {"content-length", "x-amz-checksum-sha256"} <= signed
    assert document["headers"]["Content-Length"] == str(len(SOURCE))
    assert (document["method"], document["handler"]) == ("PUT", "report.zip")


def test_the_url_is_neither_logged_nor_kept(
    system: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    key = {"Idempotency-Key": "k"}
    first = system.call("POST", "/v1/scripts/uploads", asked(), headers=key)
    again = system.call("POST", "/v1/scripts/uploads", asked(), headers=key)

    assert (first.status, again.status) == (201, 201)
    kept = json.dumps(system.database.scan(TableName=system.requests_table)["Items"])
    printed = capsys.readouterr()
    for text in (kept, printed.out, printed.err):
        assert "X-Amz-Signature" not in text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(
            ({"handler": name}, "handler")
            for name in ("../x", "a/b", "", ".", "..", "a" * 129, "a\n", "%2e", "ä", "-a", None)
        ),
        ({"pool": "nowhere"}, "pool"),
        ({"pool": CALLS}, "pool"),
        ({"pool": "../other"}, "pool"),
        ({"size": 0}, "size"),
        ({"size": 10 * 1024 * 1024 + 1}, "size"),
        ({"size": "12"}, "size"),
        ({"sha256": "x"}, "sha256"),
        ({"sha256": "A" * 64}, "sha256"),
        ({"tenant": OTHER_TENANT}, "tenant"),
    ],
)
def test_refusals(system: Deployment, change: dict[str, Any], field: str) -> None:
    answer = system.call("POST", "/v1/scripts/uploads", asked() | change)

    assert (answer.status, answer.fault["field"]) == (422, field)


@pytest.mark.parametrize("handler", ["report.py", "report.PY", "report.py.py"])
def test_the_ending_of_the_file_is_not_part_of_a_name(system: Deployment, handler: str) -> None:
    upload = system.call("POST", "/v1/scripts/uploads", asked(handler))
    named = [handler, f"{handler}@sha256:{'0' * 64}"]
    jobs = [
        system.call("POST", "/v1/jobs", {"type": "MANUAL", "target": {"handler": each}})
        for each in named
    ]

    for refused, field in [(upload, "handler"), *((job, "target.handler") for job in jobs)]:
        assert_problem(refused, 422, field=field)
        [error] = refused.document["errors"]
        assert error["problem"] == "ends in .py, which is not part of the name of a script"
        assert error["remedy"] == "Leave it out: `report`."


def test_a_job_that_names_a_file_since_before_it_was_rejected_can_be_changed(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(check_definition, "check_no_ending", lambda *_: None)
        system.register(jobId="old", target={"handler": "report.py"})

    changed = system.call("PATCH", "/v1/jobs/old", {"timeoutSec": 61})

    assert changed.status == 200, changed.document
    assert changed.document["target"]["handler"] == "report.py"


def test_they_are_listed_by_pool_page_by_page(system: Deployment) -> None:
    for name in ("b", "a", "c.zip"):
        push(system, name)
    mine = [("default", "deep/er.py"), ("default", "data.json"), ("gone", "old.py")]
    odd = [f"pools/{pool}/{TENANT}/{name}" for pool, name in mine]
    for key in (*odd, "pools/loose.py", f"{TENANT}/default/former.py"):
        system.objects.put_object(Bucket=system.bucket, Key=key, Body=b"x")

    for limit in ("1", "2", "100"):
        everything = ["default/a", "default/b", "default/c.zip", "gone/old"]
        assert listed(system, limit=limit) == everything
        assert listed(system, limit=limit, pool="default") == everything[:3]
    assert listed(system, pool="gone") == ["gone/old"]
    for query in ({"pool": ""}, {"pool": "a/b"}, {"pool": ".."}, {"pool": "a" * 65}):
        assert_problem(system.call("GET", "/v1/scripts", query=query), 422, field="pool")
    # S3 accepts no key of more than 1,024 bytes.
    beyond = encode_cursor(f"default/{'x' * (1025 - len(f'pools/default/{TENANT}/'))}")
    for cursor in ("x", beyond):
        answer = system.call("GET", "/v1/scripts", query={"cursor": cursor})
        assert_problem(answer, 422, field="cursor")


def test_versions(system: Deployment) -> None:
    system.objects.put_bucket_versioning(
        Bucket=system.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    for source in (b"1", b"22", b"333"):
        push(system, "report", source)
    path = "/v1/scripts/default/report/versions"

    first = system.call("GET", path, query={"limit": "2"}).document
    rest = system.call("GET", path, query={"limit": "2", "cursor": first["cursor"]}).document

    assert [each["size"] for each in first["items"] + rest["items"]] == [3, 2, 1]
    assert [each["latest"] for each in first["items"]] == [True, False]
    assert "cursor" not in rest
    for absent in ("default/repor", "nowhere/report"):
        assert system.call("GET", f"/v1/scripts/{absent}/versions").status == 404
    assert system.call("GET", "/v1/scripts/default/..%2Fx/versions").status in {404, 422}
    assert system.call("GET", path, query={"cursor": "x"}).status == 422


def test_tenants_are_walled_from_each_other(system: Deployment) -> None:
    ours = push(system, "report")
    push(system, "second")
    cursor = system.call("GET", "/v1/scripts", query={"limit": "1"}).document["cursor"]

    theirs = system.call("POST", "/v1/scripts/uploads", asked(), tenant=OTHER_TENANT).document

    assert f"/{OTHER_TENANT}/" in theirs["uploadUrl"]
    assert ours["url"] != theirs["url"]
    assert listed(system, OTHER_TENANT) == []
    assert listed(system, OTHER_TENANT, cursor=cursor) == []
    path = "/v1/scripts/default/report/versions"
    assert system.call("GET", path, tenant=OTHER_TENANT).status == 404


def test_a_signature_is_part_of_the_upload_and_stored_with_the_script(system: Deployment) -> None:
    signature = "A" * 86 + "=="

    document = system.call(
        "POST", "/v1/scripts/uploads", asked() | {"signature": signature}
    ).document
    signed = parse_qs(urlsplit(document["uploadUrl"]).query)["X-Amz-SignedHeaders"][0]
    put = requests.put(document["uploadUrl"], SOURCE, headers=document["headers"], timeout=9)

    assert put.ok
    assert document["headers"]["x-amz-meta-nextfire-signature"] == signature
    assert "x-amz-meta-nextfire-signature" in signed.split(";")
    uploaded = system.objects.get_object(Bucket=system.bucket, Key=document["objectKey"])
    assert uploaded["Metadata"] == {"nextfire-signature": signature}
    for malformed in ("x", "A" * 88, "A" * 86 + "=\n"):
        answer = system.call("POST", "/v1/scripts/uploads", asked() | {"signature": malformed})
        assert (answer.status, answer.fault["field"]) == (422, "signature")


def test_a_pool_of_signed_scripts_takes_no_others(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executors would run neither this version nor, from then on, the one before."""
    pool = {"queueUrl": system.queue_url, "maxTimeout": "PT1M", "signed": True}
    system.configure(monkeypatch, pools=json.dumps({"default": pool}))

    answer = system.call("POST", "/v1/scripts/uploads", asked())
    signed = system.call("POST", "/v1/scripts/uploads", asked() | {"signature": "A" * 86 + "=="})

    assert (answer.status, answer.fault["field"]) == (422, "signature")
    assert "--sign" in answer.fault["remedy"]
    assert signed.status == 201


@pytest.mark.parametrize("signature", [None, "A" * 86 + "=="])
def test_an_upload_is_audited_with_its_digest_size_and_key(
    system: Deployment, capsys: pytest.CaptureFixture[str], signature: str | None
) -> None:
    more = {} if signature is None else {"signature": signature}

    system.call("POST", "/v1/scripts/uploads", asked() | more)

    lines = capsys.readouterr().out.splitlines()
    [event] = [json.loads(line) for line in lines if line.startswith('{"event":"audit"')]
    assert (
        event["after"].items()
        >= {
            "objectKey": f"pools/default/{TENANT}/report.py",
            "size": len(SOURCE),
            "sha256": hashlib.sha256(SOURCE).hexdigest(),
            "signed": signature is not None,
        }.items()
    )
    assert event["request"]["sha256"] == hashlib.sha256(SOURCE).hexdigest()
    assert "X-Amz-Signature" not in json.dumps(event)
