"""Templates, tables and pictures that the pages of ``evaluate`` and ``reproduce`` share."""
