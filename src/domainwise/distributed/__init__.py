"""Work on a Dask cluster: estimators fitted from Parquet files, and folds on its workers."""

from domainwise.distributed.fit import fit_parquet

__all__ = ["fit_parquet"]
