"""Every configuration key does something: one test of the effect per key, and a test that none
is missing. `effect_of` names the keys a test is about.
"""
