"""The `fairlead` command: one file per verb."""
