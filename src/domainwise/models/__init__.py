"""Methods by name, models for tables, and functions that apply models to files of any size."""
