"""Parts of the registration benchmark."""
