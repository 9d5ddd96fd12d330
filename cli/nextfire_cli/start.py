"""The entry point of the installed command `nextfire`. Small: Ctrl-C ends its imports quietly."""

# Imported while SIGINT ends the process.
# ruff: noqa: PLC0415

import signal


def main() -> None:
    """Run the command. Until it is imported, Ctrl-C ends the process without a traceback."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from nextfire_cli.main import app

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()
