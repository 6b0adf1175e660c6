"""Parallel jobs, results files that a later run resumes, and files replaced in one step."""
