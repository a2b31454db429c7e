"""For all tests: torch's threads wait without spinning, since several test processes share the cores."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read once, when the OpenMP library is loaded
os.environ.setdefault("OMP_NUM_THREADS", "1")
