"""The option --debug: shows the HTTP exchange on stderr."""

import logging
from collections.abc import Callable

from rich.text import Text

from nextfire_cli.escaping import escaped
from nextfire_cli.session import Session

_LOGGER = "nextfire.client"


class _Printed(logging.Handler):
    def __init__(self, caller: Session) -> None:
        super().__init__(logging.DEBUG)
        self._caller = caller

    def emit(self, record: logging.LogRecord) -> None:
        text = Text(escaped(record.getMessage(), keep="\n"))
        self._caller.err.print(text, soft_wrap=True)


def show_exchanges(caller: Session) -> Callable[[], None]:
    """Print requests and responses, without secrets. Returns a function that ends it."""
    logger, handler = logging.getLogger(_LOGGER), _Printed(caller)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def end() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    return end
