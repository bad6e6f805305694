"""EventNative compatibility API: sync tasks of source collections."""
