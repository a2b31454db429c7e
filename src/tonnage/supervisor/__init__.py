"""The process that looks after one run: `python -m tonnage.supervisor RUN_DIR`. docs/run.md says what it does when."""
