"""What the cases share that push jobs of the workers' module ``tasks`` and look at the books."""

import pytest


@pytest.fixture
def push(app):
    """Push a job of the workers' module ``tasks``."""

    def push(name, *args, **fields):
        return app.push({"class": f"tasks.{name}", "args": list(args), **fields})

    return push
