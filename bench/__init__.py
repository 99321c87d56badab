"""The benchmarks: ``python -m bench``. What each case measures stands at its function."""
