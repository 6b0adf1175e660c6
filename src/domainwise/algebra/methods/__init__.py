"""The methods as functions of a Gram operator, without input checks or N x N matrices."""
