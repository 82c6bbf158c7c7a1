"""Who can speak in a debate without being trained: each is a `Speak`, a function from an observation to what is said.

How it is built, from the bottom:

    endpoint.py     an OpenAI-compatible server: its address, model and key
    reading.py      what such a server sends back, read with suspicion
    chat.py         asks such a server, again where that may help
    chat_player.py  a model at such a server: in any seat, as a judge, or asked plainly
    listening.py    who hears a speaker while it speaks
    streaming.py    a sampler that tells what it writes while it writes
"""
