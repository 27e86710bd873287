"""Weights that come with the package, each with its settings and how it was trained."""
