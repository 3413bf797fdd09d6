"""Facts without judgement.

    waits          which operation waits for which: the dependency edges of a schedule
    timeline       when every operation starts and ends
    memory         how many activations a rank holds
    buffers        how many messages a rank has in hand
    idle           work, idle time, span
    critical       why each operation starts when it does, and the critical path
    attribution    where idle time comes from, gap by gap
    recognition    whether two orders are the same, or but for a part
    moves          the fewest elements to move to make one sequence of another
    channels       which send pairs with which receive
    models         the named communication models
    streams        what blocks as one, who consumes what, in which order posts complete
    events         a program under a model as an event graph
    rendezvous     the strict model, fast
    deadlock       where every rank stops, and the least capacity
    communication  the verdict under every named model
    cycle         the shortest cycle of waits among what stopped

All of them walk columns; none of them yields a diagnostic.
"""
