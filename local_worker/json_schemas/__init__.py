"""JSON schemas of outputs, in the form that llguidance reads."""
