"""What the adapters to engines have in common; nothing of it knows an engine."""
