"""The papers' figures and tables, simulated. No part of what is installed: run it in a checkout."""
