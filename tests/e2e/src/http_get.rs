//! The page that a process serves about itself: figures and health.

use anyhow::Result;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// What is at a path of an address, head and all.
pub fn http_get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
