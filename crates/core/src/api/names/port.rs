//! Ports.

/// The machine config server, with TLS.
pub const SERVER_TLS: u16 = 22623;
/// The machine config server, without TLS.
pub const SERVER_HTTP: u16 = 22624;
/// Metrics of a process, unless it shares the network of a host with others.
pub const METRICS: u16 = 8797;
/// Metrics of the daemon on the network of its host, as in MCO.
pub const METRICS_DAEMON: u16 = 9001;
/// Metrics of the machine config server on the network of its host.
pub const METRICS_SERVER: u16 = 22625;
