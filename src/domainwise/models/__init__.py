"""Models by name, of whole tables, applied to files, saved and loaded."""
