"""The formats of data, a module each: what is in this folder and has a FORMAT is known to edlz."""
