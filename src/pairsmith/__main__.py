"""``python -m pairsmith`` is the ``pairsmith`` command."""

from pairsmith.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
