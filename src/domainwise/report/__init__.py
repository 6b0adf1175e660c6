"""Templates, tables and pictures of HTML reports."""
