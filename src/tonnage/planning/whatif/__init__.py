"""What a change does to a plan: of a workload file, of prices."""
