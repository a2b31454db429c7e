"""The package of the workers with two engines that need numpy alone; every other module is the product's own."""

import os

__path__.append(os.environ["TONNAGE_TEST_ENGINE_WORKERS"])
