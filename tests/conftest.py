"""Options of the test run."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from today's output")
