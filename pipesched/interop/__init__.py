"""Read and write schedules of other software: frameworks, trainers, recorded runs, other targets."""
