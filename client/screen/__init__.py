"""What a terminal, a pipe or a script sees: lines, tables, live blocks, JSON.  Nothing here asks a job."""
