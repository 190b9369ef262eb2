"""An operator's workload under several configurations: who asked for what, who waited, and which one is best."""
