"""Programs of the checkout: the demo, the pages made from code, the lock file. Not installed."""
