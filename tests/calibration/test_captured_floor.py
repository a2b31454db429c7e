"""What a fit may say of a captured kernel."""

from __future__ import annotations

import pytest

from tonnage.calibration.inference_classes import CAPTURED, CAPTURED_FLOOR_US
from tonnage.calibration.store import calibrated_engines
from tonnage.sizing.assumptions import Assumptions


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_kernel_takes_no_longer_than_one_alone(name: str) -> None:
    """The fitted floor of engines that replay a graph stays at most that of a kernel measured by itself."""
    assert Assumptions().kernel_floor_us == CAPTURED_FLOOR_US
    assert calibrated_engines()[name].kernel_floor_us <= CAPTURED_FLOOR_US
