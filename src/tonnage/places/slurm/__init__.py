"""Runs as jobs of Slurm: the batch script, the questions before it, the commands that send and follow it."""
