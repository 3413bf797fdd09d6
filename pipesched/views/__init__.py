"""Pictures of a schedule: text, SVG, a page, a trace, a graph. Each module draws one `chart.Chart`."""
