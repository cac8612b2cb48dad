"""llama.cpp's own server, in a process that tests can kill: ``tests/llama_server.py FILE PORT [SLOTS]``."""

import sys
import time

import xllamacpp

if __name__ == "__main__":
    given = xllamacpp.CommonParams()
    given.model.path, given.port = sys.argv[1], int(sys.argv[2])
    given.hostnames = ["127.0.0.1"]
    given.n_parallel = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    given.n_ctx = given.n_parallel * 256
    given.warmup = False
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(given)
    print(server.listening_address, flush=True)
    time.sleep(3600)
