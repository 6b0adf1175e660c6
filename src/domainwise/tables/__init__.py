"""Tables as people have them: reading, columns, target and domain, writing."""
