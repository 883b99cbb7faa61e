//! End-to-end tests: one file a topic, real mongods, real drivers. See `docs/architecture.md`.
