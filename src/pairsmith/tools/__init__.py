"""What is done with finished folders: reports, audits, exports, uploads. Nothing imports these."""
