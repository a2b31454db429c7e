"""DigitalOcean as a place: droplets."""
