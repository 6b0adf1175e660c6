"""Kernel functions between rows, rules for gamma, landmarks, and random Fourier features."""
