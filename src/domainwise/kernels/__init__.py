"""Kernels of rows: their values, bandwidths, landmarks and precision."""
