"""What the command says when AWS refuses a request or does not respond."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from nextfire_cli.errors import CliError


@contextmanager
def explained(problem: str, remedy: str) -> Iterator[None]:
    """Raise the errors of AWS as `CliError`: *problem* with the cause, and *remedy*."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise CliError(f"{problem}: {error}.", remedy) from error
