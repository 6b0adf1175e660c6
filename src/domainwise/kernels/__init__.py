"""Kernels of rows: their values, the rules for their widths, landmarks and precision."""
