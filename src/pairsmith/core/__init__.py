"""What everything stands on: errors, settings, progress, paths, and the names of models."""
