"""`python -m lakebed` is the `lakebed` command."""

from lakebed.cli import main

if __name__ == "__main__":
    main()
