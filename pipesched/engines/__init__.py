"""Operations that consist of parts on engines: the time of a slot in which communication overlaps compute."""
