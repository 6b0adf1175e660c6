"""The splitter that holds out whole domains, and folds for searches."""
