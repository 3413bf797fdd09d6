"""Pictures of a schedule: in the terminal, SVG, a page, a trace, a graph, a table. Each draws a `chart.chart.Chart`."""
