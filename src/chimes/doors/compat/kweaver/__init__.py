"""The KWeaver door: scheduled actions of knowledge networks (R0.25–R0.31)."""
