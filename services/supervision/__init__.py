"""Running a job's processes as its master says, wherever they run."""
