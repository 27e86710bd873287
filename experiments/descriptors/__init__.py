"""The learnt projection of descriptors: its training, and what it wins."""
