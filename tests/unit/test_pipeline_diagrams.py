"""Diagrams of pipelines."""

from __future__ import annotations

from nextfire.client.pipelines.diagram import dot, mermaid
from nextfire.client.pipelines.document import Pipeline
from tests.unit.pipeline_documents import job, pipeline

ETL = pipeline(
    end=job(type="CRON", schedule="0 3 * * *"),
    load=job("end", triggerRule="ALL_DONE"),
    late=job(after=[{"job": "outside", "delaySec": 60}], type="AFTER"),
)
OTHER = Pipeline(None, pipeline(None, alone=job()).jobs)


def test_mermaid() -> None:
    assert mermaid([ETL, OTHER]) == (
        "flowchart LR\n"
        '    subgraph p0["etl"]\n'
        '        n0["end<br>CRON 0 3 #42; #42; #42;"]\n'
        '        n1["load<br>ALL_DONE"]\n'
        '        n2["late"]\n'
        "    end\n"
        '    n3["alone<br>MANUAL"]\n'
        '    n4(["outside"])\n'
        "    n0 --> n1\n"
        '    n4 -- "+60 s" --> n2\n'
    )


def test_dot() -> None:
    assert dot([ETL, OTHER]) == (
        "digraph pipelines {\n"
        "    rankdir=LR;\n"
        "    node [shape=box];\n"
        "    subgraph cluster_0 {\n"
        '        label="etl";\n'
        '        "end" [label="end\\nCRON 0 3 * * *"];\n'
        '        "load" [label="load\\nALL_DONE"];\n'
        '        "late" [label="late"];\n'
        "    }\n"
        '    "alone" [label="alone\\nMANUAL"];\n'
        '    "outside" [style=dashed];\n'
        '    "end" -> "load";\n'
        '    "outside" -> "late" [label="+60 s"];\n'
        "}\n"
    )


def test_texts_of_users_are_quoted() -> None:
    hostile = 'a"]; click n0 "javascript:x"'
    jobs = pipeline(None, a=job(type="CRON", schedule=hostile)).jobs

    assert '"]; click' not in mermaid([Pipeline(None, jobs)])
    assert '\\"]; click n0 \\"' in dot([Pipeline(None, jobs)])
