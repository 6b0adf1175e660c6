"""The registry of methods, models of whole tables, and applying them to files of any size."""
