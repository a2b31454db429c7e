"""Azure, pretended."""
