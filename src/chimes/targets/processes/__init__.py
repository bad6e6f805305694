"""Processes of their own for what must not hurt the node: started, listened to, ended for sure."""
