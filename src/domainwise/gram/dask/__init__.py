"""The exact operator on Dask, and what its task graphs are made of."""
