"""`fairlead demo`: one contention scenario, served twice, with the evidence side by side."""
