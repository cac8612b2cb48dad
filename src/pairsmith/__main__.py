"""``python -m pairsmith`` runs the ``pairsmith`` command."""

from __future__ import annotations

from pairsmith import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """The ``pairsmith`` command, as ``pairsmith.cli.app.main`` describes it."""
    try:  # Ctrl-C during the imports, too, ends it without a traceback
        from pairsmith.cli.app import main as run

        run(arguments)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
