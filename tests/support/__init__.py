"""What the tests share: debates in shorthand, runs on disk, servers good and bad, a browser, real tokenizers, a tiny model."""
