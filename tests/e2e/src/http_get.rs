//! Reads the metrics and health endpoints of a process.

use anyhow::Result;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The response for a path, headers included.
pub fn http_get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
