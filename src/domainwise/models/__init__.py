"""The methods by name, and models of whole tables, applied to files of any size."""
