"""Work besides training: asking, labelling, measuring judges, rescoring, transcripts from anywhere, export."""
