"""Task graphs for sums over rows on Dask."""
