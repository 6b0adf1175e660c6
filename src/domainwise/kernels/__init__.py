"""Kernels of rows: values, rules for their widths, landmarks and precision."""
