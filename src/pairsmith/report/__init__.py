"""Pages for people: what lies in a folder, on one self-contained page."""
