"""The same table in every format."""

import csv

import numpy as np

FORMATS = ("npy", "npz", "csv", "tsv", "txt", "parquet")


def names_for(columns):
    return tuple(f"feature {j}" for j in range(columns))


def write_table(path, table, *, features=None, by_columns=False):
    """Write samples as the end of the path says; names go where the format has a place for them."""
    if by_columns:
        table = np.asfortranarray(table)
    kind = path.suffix[1:]
    if kind == "npy":
        np.save(path, table)
    elif kind == "npz":
        np.savez_compressed(path, X=table, **({} if features is None else {"features": np.array(features)}))
    elif kind == "parquet":
        write_parquet(path, table, features)
    else:
        delimiter = {"csv": ",", "tsv": "\t", "txt": "|"}[kind]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerows([] if features is None else [features])
            writer.writerows(table.tolist())
    return path


def write_parquet(path, table, features):
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    names = features or names_for(table.shape[1])
    parquet.write_table(pa.table(dict(zip(names, table.T, strict=True))), path, row_group_size=7)
