"""Checks of what users pass in. Every private import from scikit-learn stands here."""
