"""One part of the encoder's benchmark per file: what it measures, its table, its claims."""
