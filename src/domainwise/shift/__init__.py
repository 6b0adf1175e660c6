"""Shift: what a model knows of its sources, and how new rows differ from them."""
