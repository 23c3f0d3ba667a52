"""Speed, measured side by side with the field's own tools; `make bench` writes it into docs/."""
