"""``python -m cogworker.cli`` is ``cogworker``."""

from cogworker.cli import main

main()
