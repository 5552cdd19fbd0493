"""``python -m replica``."""

from replica.cli import main

if __name__ == "__main__":
    main()
