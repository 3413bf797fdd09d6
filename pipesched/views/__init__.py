"""Draws a schedule: as text, SVG figure, HTML page, trace, graph or table. Each view draws a `chart.chart.Chart`."""
