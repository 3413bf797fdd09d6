"""Operations that are made of parts on engines: what a slot takes when communication runs beside compute."""
