"""`moot view`: a page over runs on disk. It reads; the only thing it writes is an index of its own, outside the runs.

runs.py        which runs there are, and the metrics of each as they grow
index.py       where each debate is and what came of it: filters and search over many, without loading them
filters.py     what can be asked of them
trust.py       the trust panel with its intervals, from the debates of the last steps
debate.py      one debate as a reader wants it: sections, votes, and who pays for which token
rescoring.py   what the votes would have taught under another reward
server.py      what may be asked, by whom: the token
serving.py     the wire under it: requests that never end, signals
static/        the page itself: plain modules, no build step, no network
"""
