"""Azure as a place: virtual machines."""
