//! Sockets that systemd has opened.

use crate::server::support::{ServerProcess, get, serve_directory_args};
use machinist_e2e::{Lab, binary, wait_for};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

#[test]
fn sockets_of_systemd_are_served_by_their_names() {
    let lab = Lab::new().unwrap();
    let arguments = serve_directory_args(&lab);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let address = lab.loopback();
    let (secure, plain) = (format!("{address}:22623"), format!("{address}:22624"));
    for (sockets, names) in [
        ([&secure, &plain], "https:http"),
        ([&plain, &secure], "insecure:secure"),
        ([&secure, &plain], "machinist-server.socket:machinist-server.socket"),
    ] {
        let mut command = Command::new("systemd-socket-activate");
        command.args(["-l", sockets[0], "-l", sockets[1], "--fdname", names]);
        command.arg(binary::machinist_binary().unwrap()).arg("server").args(&arguments);
        ServerProcess::issue_certificate(&lab, &address, &mut command);
        let mut process = lab.spawn("server", &command).unwrap();
        wait_for("systemd to listen", || {
            process.check_alive()?;
            Ok(TcpStream::connect(&plain).is_ok())
        })
        .unwrap();
        // The server handles connections that arrive before it has started.
        assert_eq!(get(&address, "/config/master").0, 200, "{names}");
        let mut stream = TcpStream::connect(&secure).unwrap();
        stream.write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        assert!(!response.starts_with(b"HTTP"), "{names}: there is no TLS on the secure port");
        process.signal(Signal::TERM).unwrap();
        assert!(process.wait().unwrap().success(), "{names}");
    }
}
