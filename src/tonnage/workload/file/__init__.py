"""The workload file at the door: its keys, what they may hold, what contradicts what, and where an error stands."""
