"""Jobs on several workers, results that a later run resumes, and files written as a whole."""
