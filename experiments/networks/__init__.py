"""Tables 2 to 5 of the paper: the networks, their training, their times, and the pages."""
