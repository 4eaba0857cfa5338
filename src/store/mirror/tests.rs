//! The mirror against the embedded store.
