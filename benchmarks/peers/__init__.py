"""Workers that need tools of the field which Earmark does not: they run in `.venv-peers`.

`make bench` makes it from `requirements.txt`. Of Earmark only what needs nothing else can be
imported there.
"""
