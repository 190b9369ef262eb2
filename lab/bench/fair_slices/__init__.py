"""What a user waits for beside others' long prompts and long outputs, whatever the unit of fairness; see `__main__`."""
