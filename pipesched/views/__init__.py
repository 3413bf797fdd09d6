"""Pictures of a schedule: text, SVG figure, HTML page, trace, graph, table. Each draws a `chart.chart.Chart`."""
