"""The steps of each route, of training, of evaluation: methods with settings, folders, resume and cards."""
