"""The programs a run executes: data in, a trained or evaluated model out."""
