"""What the command says when it cannot go on; `main` prints it and exits with 1.

CliError          what is wrong, and what to do about it
└── ApiError      the API refused: its status and its problem document (RFC 9457)
"""

from typing import Any


class CliError(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Build the error.

        Args:
            problem: A whole sentence or two.
            remedy: What the caller can do; whole sentences, lines allowed.
        """
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}".strip())

    def document(self) -> dict[str, Any]:
        """As JSON, in the form of the API's own problems."""
        return {"title": self.problem, "detail": self.remedy}


class ApiError(CliError):
    """The API refused. `status` is HTTP's; `body` the problem document."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body = body
        lines = []
        for error in body.get("errors", []):
            got = f" (got {error['value']})" if "value" in error else ""
            problem = str(error["problem"]).removeprefix("Value error, ")  # pydantic's own words
            lines.append(f"{error['field']}: {problem}{got}. {error.get('remedy', '')}")
        # The detail says the same as the errors, in one breath.
        super().__init__(
            f"{body.get('title', 'The API refused')} ({status}).",
            "\n".join(line.strip() for line in lines) or str(body.get("detail", "")),
        )

    def document(self) -> dict[str, Any]:
        return {"status": self.status, **self.body}
