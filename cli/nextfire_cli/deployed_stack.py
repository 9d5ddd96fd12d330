"""The AWS account of the stack that `--stack` names."""

from typing import TYPE_CHECKING

from nextfire_cli.errors import CliError
from nextfire_cli.session import Session

if TYPE_CHECKING:
    from nextfire_cli.aws import Account


def account_of(caller: Session, stack: str | None) -> "Account":
    """The account of *stack*, a stack on AWS: with the credentials and the region of the caller,
    never those of a local stack, which may have the same name. None: the account of the API.

    Raises:
        CliError: The credentials cannot be loaded, or no region is given.
    """
    from nextfire_cli.aws import Account  # noqa: PLC0415 — boto3 takes a second

    if stack is None:
        return caller.account()
    account = Account.of_caller(caller.profile, caller.region)
    if account.region is None:
        here = "\nFor the emulator of this folder, leave out --stack."
        raise CliError(
            f"No AWS region is given for the stack {stack!r}.",
            f"Name its region: --stack {stack} --region eu-central-1\n(or set AWS_REGION)."
            + (here if _has_emulator(caller) else ""),
        )
    return account


def _has_emulator(caller: Session) -> bool:
    try:
        return caller.emulator() is not None
    except CliError:  # the embedded stack, or one that has lost a process
        return False
