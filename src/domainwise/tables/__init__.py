"""Users' tables: reading and writing files, checking columns and labels, and column statistics."""
