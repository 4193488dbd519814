"""The pods of a job as they live: started, watched, ended."""
