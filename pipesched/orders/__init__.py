"""Orders as other people write them: cells of torch's CSV, and words, a line for each rank; read and written."""
