"""Model values as plain JSON data and back, the same for every store and for exports.

Encoding leaves out what is empty; decoding gives an absent key its default, so that rows stay
small and old rows still load, and refuses a key it does not know, which would otherwise be lost
at the next write.
"""
