"""What the encoder is for: one package for each task."""
