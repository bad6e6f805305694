"""What a node tells of itself, as JSON."""

from __future__ import annotations

import json

from chimes.model.node import NodeFacts


def facts_to_text(facts: NodeFacts | None) -> str:
    if facts is None:
        return ""
    plain = {
        "running": facts.running,
        "sending": facts.sending,
        "claims_per_minute": facts.claims_per_minute,
        "memory": facts.memory,
        "queues": list(facts.queues),
        "draining": facts.draining,
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def facts_from_text(text: str) -> NodeFacts | None:
    """What a newer node says and this one cannot read is as if it had said nothing."""
    try:
        plain = json.loads(text) if text else None
        if plain is None:
            return None
        memory = plain.get("memory")
        return NodeFacts(
            running=int(plain.get("running", 0)),
            sending=int(plain.get("sending", 0)),
            claims_per_minute=float(plain.get("claims_per_minute", 0.0)),
            memory=None if memory is None else int(memory),
            queues=tuple(str(each) for each in plain.get("queues", ())),
            draining=bool(plain.get("draining", False)),
        )
    except (ValueError, TypeError, AttributeError):
        return None
