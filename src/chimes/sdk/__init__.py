"""Python SDK: applications that declare tasks, flows and schedules."""
