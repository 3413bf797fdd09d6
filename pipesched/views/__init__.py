"""Pictures of a schedule: SVG, a page, a trace, a graph, a table. Each module draws one `chart.Chart`."""
