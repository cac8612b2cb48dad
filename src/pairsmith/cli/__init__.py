"""The command line: commands, recipes, plans and comparisons. It holds no method."""
