"""Images and audio passed through: read as far as their price needs, their bytes as they came."""
