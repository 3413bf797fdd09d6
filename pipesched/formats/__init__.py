"""Schedules and programs of others, in and out.

sniff        which format a text is
torch_csv    torch's compute_only and compute_comms files, read strictly (torch_cells, torch_fast)
order_text   the notation ``rank 0: F0.0 B0.0``, read (order_words) and written (order_write)
rows, agree  what the readers share: placement from rows, and whether it is what the user said
stream_*     the published form, read (stream_lines, stream_strict, json_places) and written (numbered)
ps_write     a schedule as a .ps file: its words (ps_letters) folded (ps_fold, ps_grow), ranks that are alike written
             once (ps_ranks), as text (ps_print, ps_place)
torch_write  torch's CSV, written; torch_trainer tells the settings that go with it
"""
