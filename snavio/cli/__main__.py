"""`python -m snavio.cli`."""

from snavio.cli import main

if __name__ == "__main__":
    main()
