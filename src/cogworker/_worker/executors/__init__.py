"""Where jobs run: ``threads`` for plain functions, ``aio`` for ``async`` ones."""
