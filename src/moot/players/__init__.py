"""From a name (a run, a model, MODEL@URL) to who speaks, once for all commands; chat/ is for servers."""
