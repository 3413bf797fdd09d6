"""Operations made of parts on engines: the time of a slot if communication overlaps compute."""
