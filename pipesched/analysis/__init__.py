"""Facts about schedules and programs. The modules of this package compute on columns and report no diagnostics.

dependencies   the operations whose results each operation needs
timeline       the start and end of every operation
idle           work, idle time, span
copies         copies to host memory and back, alongside compute
holdings       the memory of a rank: activations and message buffers

lists          lists that wait for each other, run once: the basis of timelines and queues
pairing        which receive belongs to which send
communication  the named communication models
events         a program under a model, as an event graph
queueing       the makespan if messages queue
termination    the models under which a program ends, and the least buffer capacity
standstill     the point where a run stops, and the cycle that stops it
cycle          the shortest cycle among stopped entries
"""
