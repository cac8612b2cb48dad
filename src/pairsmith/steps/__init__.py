"""One package a route: each step gives a method settings, a folder, resume and a card."""
