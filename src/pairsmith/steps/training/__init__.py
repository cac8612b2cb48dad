"""The trainings as steps."""
