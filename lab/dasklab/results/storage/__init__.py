"""Read and write the files of runs and trials."""
