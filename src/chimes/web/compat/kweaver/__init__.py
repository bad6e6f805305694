"""KWeaver compatibility API: scheduled actions of knowledge networks."""
