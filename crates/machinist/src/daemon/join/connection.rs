//! Why an API server cannot be joined, before anything is requested of it: each cause has its own message with
//! a remedy. Called once at the start of `join`.

use std::error::Error;
use std::time::Duration;

use anyhow::{Result, anyhow};
use rustls::CertificateError;
use tokio::time::timeout;

/// How long the API server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the API server for its version.
///
/// # Errors
/// It cannot be reached, or it is another server than the one that the CA certificate is for.
pub(super) async fn check_connection(client: &kube::Client, server: &str) -> Result<()> {
    let request = http::Request::get("/version").body(Vec::new())?;
    match timeout(ANSWER_TIMEOUT, client.request_text(request)).await {
        // Any answer will do: what the credentials may do is found out by the request for a certificate.
        Ok(Ok(_) | Err(kube::Error::Api(_))) => Ok(()),
        Ok(Err(error)) => Err(anyhow!(explain(server, &ConnectionFault::of(&error)))),
        Err(_) => Err(anyhow!(explain(server, &ConnectionFault::NoAnswer))),
    }
}

/// What is wrong with a connection.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionFault {
    /// Another CA has signed the certificate of the server.
    OtherAuthority,
    /// The certificate is not valid yet, or not any more, at this machine's time.
    Time,
    /// The certificate does not have the name in the URL.
    OtherName,
    /// Something answers that does not speak TLS.
    NoTls,
    /// Nothing listens on the port.
    Refused,
    /// The name has no address.
    UnknownHost(String),
    /// Nothing comes back.
    NoAnswer,
    /// Anything else, in the words of the library.
    Other(String),
}

impl ConnectionFault {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut innermost = error.to_string();
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(fault) = Self::of_cause(cause) {
                return fault;
            }
            innermost = cause.to_string();
            next = cause.source();
        }
        if innermost.contains("failed to lookup address") {
            return Self::UnknownHost(innermost);
        }
        Self::Other(innermost)
    }

    /// One error of the chain. An I/O error does not give what it wraps as its source.
    fn of_cause(cause: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return Self::of_tls(tls);
        }
        let io = cause.downcast_ref::<std::io::Error>()?;
        if let Some(inner) = io.get_ref() {
            return Self::of_cause(inner);
        }
        match io.kind() {
            std::io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            std::io::ErrorKind::TimedOut | std::io::ErrorKind::HostUnreachable => {
                Some(Self::NoAnswer)
            }
            _ => None,
        }
    }

    fn of_tls(error: &rustls::Error) -> Option<Self> {
        use CertificateError as Bad;
        match error {
            rustls::Error::InvalidCertificate(bad) => Some(match bad {
                Bad::UnknownIssuer | Bad::BadSignature => Self::OtherAuthority,
                Bad::Expired
                | Bad::ExpiredContext { .. }
                | Bad::NotValidYet
                | Bad::NotValidYetContext { .. } => Self::Time,
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Self::OtherName,
                other => Self::Other(other.to_string()),
            }),
            rustls::Error::InvalidMessage(_) => Some(Self::NoTls),
            other => Some(Self::Other(other.to_string())),
        }
    }
}

/// The message, with the remedy.
fn explain(server: &str, fault: &ConnectionFault) -> String {
    let why = match fault {
        ConnectionFault::OtherAuthority => {
            "its certificate is signed by another CA than the given one: copy pki/ca.crt from the data directory of the hub again (--ca-file), or correct --apiserver-url".to_owned()
        }
        ConnectionFault::Time => {
            "its certificate is not valid at this machine's time: compare `date -u` on both machines, and set the clock".to_owned()
        }
        ConnectionFault::OtherName => {
            "its certificate does not have this name: use a name or address that it has, or start the hub with `machinist up --san NAME`".to_owned()
        }
        ConnectionFault::NoTls => {
            "something answers there that does not speak TLS: correct the port; a hub's API is on 6443".to_owned()
        }
        ConnectionFault::Refused => {
            "nothing listens on this port: correct it, start the hub, or let it listen on more than the loopback address (`machinist up --api-listen 0.0.0.0:6443`)".to_owned()
        }
        ConnectionFault::UnknownHost(why) => {
            format!("the host name has no address ({why}): correct it, or use an address")
        }
        ConnectionFault::NoAnswer => {
            "there is no answer: check the address, and the firewalls between the machines".to_owned()
        }
        ConnectionFault::Other(why) => format!("{why}: correct --apiserver-url"),
    };
    format!("cannot join {server}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn every_cause_has_its_message() {
        let tls = |bad| rustls::Error::InvalidCertificate(bad);
        // As the HTTP client wraps it.
        let wrapped = |error: rustls::Error| io::Error::other(io::Error::other(error));
        let no_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        for (error, part) in [
            (wrapped(tls(CertificateError::UnknownIssuer)), "another CA"),
            (wrapped(tls(CertificateError::BadSignature)), "another CA"),
            (wrapped(tls(CertificateError::Expired)), "set the clock"),
            (wrapped(tls(CertificateError::NotValidYet)), "set the clock"),
            (wrapped(tls(CertificateError::NotValidForName)), "--san"),
            (wrapped(no_tls), "does not speak TLS"),
            (io::Error::from(io::ErrorKind::ConnectionRefused), "nothing listens"),
            (io::Error::from(io::ErrorKind::TimedOut), "there is no answer"),
            (io::Error::other("failed to lookup address information: x"), "has no address"),
            (io::Error::other("something else"), "something else: correct --apiserver-url"),
        ] {
            let text = explain("https://h:1", &ConnectionFault::of(&error));
            assert!(text.starts_with("cannot join https://h:1: ") && text.contains(part), "{text}");
        }
    }
}
