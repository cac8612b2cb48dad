"""The papers' methods: objects in, objects out. No folders, settings of the command line, or processes."""
