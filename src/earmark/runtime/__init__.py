"""How work runs on this machine -> instruction sets now; nothing here changes a result."""
