"""Dataset shift: statistics of a model's source domains, and how new rows differ from them."""
