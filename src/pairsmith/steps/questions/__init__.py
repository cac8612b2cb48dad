"""Questions on passages: the steps `ask`, which generates them, and `relabel`, in which a teacher answers."""
