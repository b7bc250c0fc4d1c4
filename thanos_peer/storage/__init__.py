"""What a run keeps on disk: checkpoints, trajectories, and the run directory with its results."""
