"""The paper again: its tables and figures, and the networks that it was compared with."""
