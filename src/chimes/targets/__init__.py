"""How runs are carried out: one module per kind of target. Targets never see the store."""
