"""The search that chooses arguments by holding out domains."""
