"""What all other packages use: errors, settings, progress, paths, and the names of models."""
