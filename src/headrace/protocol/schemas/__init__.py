"""What Kafka stores in its own topics: metadata, group offsets, transactions, assignments."""
