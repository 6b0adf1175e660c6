"""Long work: jobs on several workers, results on disk, statistics over them, whole files."""
