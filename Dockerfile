# The GPU path as an image: torch with CUDA from the package index, a compiler for triton, bubblewrap for tasks of code.
FROM python:3.12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends build-essential bubblewrap && rm -rf /var/lib/apt/lists/*
WORKDIR /moot
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir '.[local,data,view]'
WORKDIR /work
ENTRYPOINT ["moot"]
CMD ["--help"]
