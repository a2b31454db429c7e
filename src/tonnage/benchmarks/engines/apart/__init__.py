"""What runs apart from tonnage, also in environments that do not hold it: the folder is their PYTHONPATH."""
