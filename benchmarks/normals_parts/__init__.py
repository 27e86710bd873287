"""One part of the normals' benchmark a file: what it measures, its table, its claims."""
