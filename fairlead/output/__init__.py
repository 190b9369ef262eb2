"""What a model's output consists of: text, reasoning and tool calls, read while the output arrives."""
