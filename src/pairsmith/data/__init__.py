"""Row types with their Arrow schemas, readers of public formats, tasks, and utilities for texts."""
