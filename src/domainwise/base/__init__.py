"""Array types, checks of arguments and inputs, warnings, parallel jobs, and writing of files."""
