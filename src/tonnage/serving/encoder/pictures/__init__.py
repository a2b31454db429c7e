"""Models of pictures: their classes, or vectors of them."""
