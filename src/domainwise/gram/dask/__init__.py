"""The exact operator on Dask, and its task graphs."""
