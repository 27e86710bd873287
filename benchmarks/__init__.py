"""Measurements of speed, memory and accuracy; run from the repository root."""
