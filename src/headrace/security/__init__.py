"""Who asks, and whether they may.

Offers the principal that every request carries (`principal`) and the authorizer that every
handler asks (`authorizer`).
Today everyone is anonymous and everything is allowed; the questions are asked all the same,
so that turning answers on later touches no handler.
"""
