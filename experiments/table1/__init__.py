"""Table 1 of the paper: the rows, their training, and the pages."""
