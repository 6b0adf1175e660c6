"""Everything with ``fit``: projections, invariant machines, ridge, ensemble, adaptation."""
