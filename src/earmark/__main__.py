"""`earmark` and `python -m earmark`: the command line.

An interrupt (Ctrl-C) ends the process without a traceback at any moment: at once while modules are
imported and while the interpreter ends; in between, commands stop in their own way.
"""

import signal
import sys


def main() -> None:
    """Run the command line, with exit code 130 after an interrupt that no command handles."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from earmark.cli import main as run

    try:
        if is_heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if is_heard:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
