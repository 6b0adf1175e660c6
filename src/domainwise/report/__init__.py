"""Shared parts of the pages of ``evaluate`` and ``reproduce``: pictures, base template."""
