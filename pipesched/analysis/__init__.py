"""Facts without judgement: all modules here compute on columns, and none yields a diagnostic.

dependencies   which operation needs the result of which
timeline       when every operation starts and ends
idle           work, idle time, span
copies         copies to host memory and back, beside the compute
holdings       what a rank holds: activations, and messages in hand

lists          lists that wait for each other, run once: what timelines and queues are made of
pairing        which send pairs with which receive
communication  the named communication models
events         a program under a model, as an event graph
queueing       how long it takes if messages wait for their turn
termination    whether it ends, under which models, and the least capacity
standstill     where a stuck run stops, and the cycle that stops it
cycle          the shortest cycle among stopped entries
"""
