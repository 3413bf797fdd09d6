"""The least bubble under a memory cap, with a proof. The order of the modules: ``README`` in `problem`."""
