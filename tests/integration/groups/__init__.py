"""Consumer groups as real clients and Kafka's own tools see them; all run `--against kafka` too."""
