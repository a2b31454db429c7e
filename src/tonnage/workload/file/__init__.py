"""The workload file: its keys, what they may hold, which contradict each other, and the place of an
error."""
