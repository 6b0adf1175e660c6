"""Kernels, label factors, and the methods as pure functions of Gram operators."""
