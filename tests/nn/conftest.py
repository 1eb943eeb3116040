"""Every test of the fast modules starts from the same random state and computes in float64."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def repeatable_and_double() -> Iterator[None]:
    torch.manual_seed(20170612)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
