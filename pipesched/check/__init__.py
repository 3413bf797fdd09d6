"""Judgements: one property, one file, each yields what it finds.

    complete    every F, and B or I + W, exactly once, in range, on its rank             PS301-304
    dataflow    order on a rank; overlap parts; compute orders that wait for each other  PS305-307
    handover    what a rank computes with was received, what it sends was computed       PS308-309
    channels    peers, counts, FIFO labels, no message twice                             PS402-405
    deadlock    the shortest cycle of waits                                             PS401
    memory      within the cap                                                           PS501
    gradients   REDUCE_GRAD once, after the last W or B                                  PS601-603
    placement   two copies of a stage at most; no rank without work                      PS604, PS902
    step        SYNC and STEP once, after the gradients are complete                     PS605-607
    buffers     no messages collected without a reason                                   PS906
    optimum     what a certificate says of an optimum holds, and its verdict follows     PS710-711
    torch_*     what torch's runtime needs and does not check                            PS804-808, 814, 901, 903

`examine` runs them all and reports what they find together; none of them stops another.
"""
