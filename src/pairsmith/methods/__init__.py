"""The papers' methods: objects in, objects out. No dataset folders, no workers."""
