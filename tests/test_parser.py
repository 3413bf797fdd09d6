from tests.chunks import chunks
