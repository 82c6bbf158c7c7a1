"""Configuration of a run: the settings, presets, files, what a saved run has, what may change on resume, checks."""
