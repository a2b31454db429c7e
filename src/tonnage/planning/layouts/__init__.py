"""How a workload would run on each machine type: layouts tried, fleets, and why no layout of a machine type holds."""
