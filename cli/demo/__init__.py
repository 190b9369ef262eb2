"""`fairlead demo`: one contention scenario under several systems, with the measurements side by side."""
