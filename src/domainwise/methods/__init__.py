"""The methods as functions over a Gram operator: no estimator, no input check, no N x N matrix."""
