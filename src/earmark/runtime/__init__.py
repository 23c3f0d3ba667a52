"""How Earmark uses the machine: cores, threads, processes, memory, CPU instructions and kernels.

    switch      EARMARK_KERNELS: Earmark's CPU optimisations, or torch alone
    kernels     batch norm, dropout and max pooling that are faster on a CPU than torch's
    memory      freed memory stays with the process
    cores       how many cores there are, and how threads wait for each other
    threads     map a function over items on threads of one core each
    processes   map a function over items in worker processes, or on a cluster
    cluster     map a function over items on a Dask cluster
    worker      what a worker of the cluster does
    local_cluster  a scheduler and workers on this machine
    isa         keep oneDNN away from instructions that the system does not grant

Conventions: everything that only makes a CPU faster (`kernels`, `memory`, the spinning of threads)
is behind one switch. With the environment variable EARMARK_KERNELS=torch, or after
`use_kernels("torch")`, torch's own operations and the system's allocator do all the work. On other
devices, and in a graph that torch compiles or exports, torch's operations are used in any case.
Tests compare both; `make bench ONLY=kernels` measures what each optimisation saves.
"""
