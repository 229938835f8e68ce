"""The text door: lines over plain TCP, for `nc` and for learning."""
