"""Who can speak in a debate without being trained: each is a `Speak`, a function from an observation to what is said.

endpoint.py    an OpenAI-compatible server: its address, model and key
chat.py        asks such a server, again where that may help, and makes a turn of its answer
reading.py     what such a server sends back, read with suspicion
streaming.py   a sampler that tells what it writes while it writes
"""
