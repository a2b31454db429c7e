"""SkyPilot as a place: managed jobs on whichever of some clouds has machines."""
