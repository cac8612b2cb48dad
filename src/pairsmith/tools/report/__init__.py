"""Reports: what a folder contains, on one self-contained HTML page."""
