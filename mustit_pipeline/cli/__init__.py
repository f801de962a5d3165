"""The `mustit` command."""


def main() -> None:
    """Run the command; exit 0 done, 1 failed, 2 usage, 130 or 143 stopped by Ctrl-C or SIGTERM."""
    # Imports take a moment, so Ctrl-C is handled before them, and also while this one is under way.
    try:
        from mustit_pipeline.cli.stopping import Stopped, hear_signals, ignore_signals

        hear_signals()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    try:
        from mustit_pipeline.cli.app import run

        run()
    except Stopped as stop:
        stop.is_taken = True
        ignore_signals()
        raise SystemExit(stop.exit_code) from None


__all__ = ["main"]
