"""llama.cpp's own server: ``llama_server.py MODEL PORT``, run by an interpreter with the package ``xllamacpp``."""

import sys
import threading

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {"m"}
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(sys.argv[2])
parameters.n_ctx = 2048
parameters.n_parallel = 1
parameters.warmup = False
parameters.use_jinja = True
parameters.cpuparams.n_threads = 1
parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)  # it listens from here on
threading.Event().wait()
