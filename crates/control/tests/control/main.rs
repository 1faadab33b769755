//! The API with real workers behind it, over the in-memory backend.

mod api;
mod bed;
mod hostile;
mod tls;
