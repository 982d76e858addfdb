"""Examples, one per file. Copy a file to your own folder and change it there."""
