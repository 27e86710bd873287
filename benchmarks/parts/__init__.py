"""One part of the encoder's benchmark a file: what it measures, its table, its claims."""
