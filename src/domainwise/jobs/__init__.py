"""Parallel jobs, results files that a later run can resume, and atomic replacement of files."""
