"""The steps of each route, of training and of evaluation: they give methods settings, folders, resume and cards."""
