//! Socket activation: which of systemd's sockets is which, by the names that their units give them.

/// The purpose of each socket, by its index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerSockets {
    /// The TLS socket.
    pub secure: Option<usize>,
    /// The plain HTTP socket.
    pub insecure: Option<usize>,
    /// The metrics socket.
    pub metrics: Option<usize>,
}

/// Assigns sockets by their names (`FileDescriptorName=`). Unnamed ones are taken in order: with
/// TLS, then without.
///
/// # Errors
/// There are too many sockets, or two with the same name.
pub fn assign_sockets(names: &[String]) -> Result<ServerSockets, String> {
    let mut sockets = ServerSockets::default();
    let mut others = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let place = match name.as_str() {
            "https" | "secure" => &mut sockets.secure,
            "http" | "insecure" => &mut sockets.insecure,
            "metrics" => &mut sockets.metrics,
            _ => {
                others.push(at);
                continue;
            }
        };
        if place.replace(at).is_some() {
            return Err(format!(
                "systemd passed two sockets with the name {name:?}; change FileDescriptorName= of one of them"
            ));
        }
    }
    for at in others {
        let free = [&mut sockets.secure, &mut sockets.insecure];
        let Some(place) = free.into_iter().find(|place| place.is_none()) else {
            return Err(format!(
                "systemd passed {} sockets; name them with FileDescriptorName=https, http or metrics",
                names.len()
            ));
        };
        *place = Some(at);
    }
    Ok(sockets)
}

/// The names of `count` sockets in `LISTEN_FDNAMES`.
#[must_use]
pub fn socket_names(count: usize, text: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> =
        text.unwrap_or_default().split(':').map(str::to_owned).take(count).collect();
    names.resize(count, String::new());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_assigned_by_name_or_order() {
        for (text, count, expected) in [
            ("", 0, Ok((None, None, None))),
            ("", 1, Ok((Some(0), None, None))),
            ("mcs.socket:mcs.socket", 2, Ok((Some(0), Some(1), None))),
            ("http:https", 2, Ok((Some(1), Some(0), None))),
            ("insecure", 1, Ok((None, Some(0), None))),
            ("http:unknown", 2, Ok((Some(1), Some(0), None))),
            ("metrics:a:b", 3, Ok((Some(1), Some(2), Some(0)))),
            ("https:secure", 2, Err(())),
            ("a:b:c", 3, Err(())),
            // Missing names, or too many.
            ("https", 2, Ok((Some(0), Some(1), None))),
            ("https:http:x", 2, Ok((Some(0), Some(1), None))),
        ] {
            let found = assign_sockets(&socket_names(count, Some(text)));
            let found = found.map(|it| (it.secure, it.insecure, it.metrics)).map_err(drop);
            assert_eq!(found, expected, "{text} {count}");
        }
    }
}
