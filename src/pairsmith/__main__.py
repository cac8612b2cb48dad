"""``python -m pairsmith`` runs the ``pairsmith`` command."""

from pairsmith.cli.app import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
