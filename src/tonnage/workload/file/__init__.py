"""The workload file at the door: its keys, what they may hold, which contradict each other, and the place of an
error."""
