"""`python -m traceanalyzer.cli`."""

from traceanalyzer.cli import main

if __name__ == "__main__":
    main()
