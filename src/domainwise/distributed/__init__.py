"""Fitting on a Dask cluster, from files that no single machine has to hold."""

from domainwise.distributed.fit import fit_parquet

__all__ = ["fit_parquet"]
