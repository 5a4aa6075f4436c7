//! Ports.

/// The machine config server, with TLS.
pub const SERVER_TLS: u16 = 22623;
/// The machine config server, without TLS.
pub const SERVER_HTTP: u16 = 22624;
/// Metrics, on the loopback address only.
pub const METRICS_LOCAL: u16 = 8797;
