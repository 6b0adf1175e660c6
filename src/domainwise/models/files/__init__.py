"""Model files: saving, and loading without running code from them."""
