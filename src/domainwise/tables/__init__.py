"""Users' tables: reading, checking columns, target and domains, statistics, and writing."""
