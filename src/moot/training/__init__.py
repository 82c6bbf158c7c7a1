"""Training: a run from its settings to its last checkpoint.

setup     a run is made: settings are checked, the engine is loaded, the folder is locked
loop      one step after the other
state     Setup, what a run is made of, and Progress, what each checkpoint saves
part      the base class of optional parts; parts/ has ours, one in each file
batches, play, score, optimise, commit, evaluations    the rooms of a step, in its order
weights   weights that stand still: base, start, ema, a run's
warm_step, warm_own    the supervised phase before self-play
"""
