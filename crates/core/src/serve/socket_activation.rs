//! Sockets that systemd has opened: which is which, by the names that their units give them.

/// Which of the sockets is for what, by its place in the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerSockets {
    /// With TLS.
    pub secure: Option<usize>,
    /// Without.
    pub insecure: Option<usize>,
    /// Figures.
    pub metrics: Option<usize>,
}

/// Sorts sockets by their names (`FileDescriptorName=`). Those with other names are taken in their order: with TLS, then
/// without.
///
/// # Errors
/// There are more than can be used, or two for the same; the text says so.
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
            return Err(format!("systemd has opened two sockets called {name:?}"));
        }
    }
    for at in others {
        let free = [&mut sockets.secure, &mut sockets.insecure];
        let Some(place) = free.into_iter().find(|place| place.is_none()) else {
            return Err(format!(
                "systemd has opened {} sockets; name them with FileDescriptorName=https, http or metrics",
                names.len()
            ));
        };
        *place = Some(at);
    }
    Ok(sockets)
}

/// The names of `count` sockets out of `LISTEN_FDNAMES`.
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
    fn which_is_which() {
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
            // Names that are missing, or are too many.
            ("https", 2, Ok((Some(0), Some(1), None))),
            ("https:http:x", 2, Ok((Some(0), Some(1), None))),
        ] {
            let found = assign_sockets(&socket_names(count, Some(text)));
            let found = found.map(|it| (it.secure, it.insecure, it.metrics)).map_err(drop);
            assert_eq!(found, expected, "{text} {count}");
        }
    }
}
