"""The `mustit` command."""

from mustit_pipeline.cli.app import main

__all__ = ["main"]
