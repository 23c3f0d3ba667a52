"""How work runs on this machine -> threads, processes, memory, CPU instructions."""
