"""Why a list of a pool is empty."""

from http import HTTPStatus

from nextfire.client.errors import ApiError
from nextfire_cli.remedies import in_words_of_the_command
from nextfire_cli.session import Session


def say_if_unknown(caller: Session, pool: str | None) -> None:
    """Print, on stderr, that the API has no *pool*, and those that it has; nothing if it has it, or
    does not say. The lists themselves do not reject it: they show what a removed pool left.
    """
    if pool is None:
        return
    try:
        caller.client().list_endpoints(pool=pool, limit=1)
    except ApiError as error:
        if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            caller.say(in_words_of_the_command(error.remedy))
