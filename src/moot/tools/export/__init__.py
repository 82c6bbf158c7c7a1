"""What can be exported from a run: weights, training sets, debates to read, figures. Reads a run's folder and nothing
else.

    places.py    nothing is overwritten unasked, and nothing half written is left
    weights.py   the adapter of a checkpoint, as peft reads it
    card.py      its model card, from the run's records
    hub.py       weights to the hub
    sets.py      supervised and preference sets, as TRL reads them
    pages.py     debates as one HTML file without scripts
    evaluate/figures.py   curves of one run or several, as PNG and SVG

The merged model needs torch, and so is made in `moot.engine.local.merge`.
"""
