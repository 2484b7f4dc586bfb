"""Runs parts of the work in other processes: on this machine, or on the machines of a cluster.

`pool` says what a pool is, and runs a method on parts of the data; the rest of the program knows
nothing else:

1. A `Job` is what all parts have in common, such as a model and its data. It travels to each worker
   once, and the worker opens it.
2. A `Task` calls a method of the opened job, on a part of the data. Its result is the same on
   every worker, so that a task of a lost worker is run again elsewhere.
3. A `Pool` runs tasks: `SerialPool` in this process, `dispatcher.ProcessPool` in others here,
   `dask_cluster` on workers of Dask. `opened_pool` chooses one.

`dispatcher` deals tasks to the workers of both kinds, has what runs in a worker, and tells whether
that has the same code as this process.
"""
