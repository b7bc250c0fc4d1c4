import importlib.util

import pytest
from samples.tables import FORMATS

HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None
NEEDS_PARQUET = pytest.mark.skipif(not HAS_PARQUET, reason="the extra `parquet` is not installed")


@pytest.fixture(params=[pytest.param(kind, marks=NEEDS_PARQUET if kind == "parquet" else ()) for kind in FORMATS])
def kind(request):
    return request.param
