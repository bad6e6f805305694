"""HTTP client: the operations of the SDK over the API of a server.

from chimes.client import Client

with Client("http://127.0.0.1:7100") as chimes:
    chimes.schedule("nightly", "0 2 * * *", "task:reports.nightly")
    print(chimes.enqueue("greet", {"name": "Ada"}).result(timeout=30))
"""

from chimes.client.client import AsyncClient, AsyncRunHandle, Client, RunHandle
from chimes.client.values import (
    ApprovalInfo,
    BulkResult,
    ConnectionInfo,
    FeedInfo,
    LimitInfo,
    LogLine,
    MinuteInfo,
    MonitorInfo,
    NodeInfo,
    PingInfo,
    PlanCollision,
    PlanInfo,
    PlannedFire,
    ProposalInfo,
    RunInfo,
    ScheduleInfo,
    SecretInfo,
    SilenceInfo,
)

__all__ = [
    "ApprovalInfo",
    "AsyncClient",
    "AsyncRunHandle",
    "BulkResult",
    "Client",
    "ConnectionInfo",
    "FeedInfo",
    "LimitInfo",
    "LogLine",
    "MinuteInfo",
    "MonitorInfo",
    "NodeInfo",
    "PingInfo",
    "PlanCollision",
    "PlanInfo",
    "PlannedFire",
    "ProposalInfo",
    "RunHandle",
    "RunInfo",
    "ScheduleInfo",
    "SecretInfo",
    "SilenceInfo",
]
