"""Everything follows X: arrays, tensors and Dask collections behind one contract."""
