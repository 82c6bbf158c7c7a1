"""Work on debates besides training: asking, measuring judges, rescoring, transcripts from anywhere, export."""
