//! Chooses the version of the Ignition specification for a client.

use super::error::ServeError;
use crate::ignition::IgnitionVersion;

/// The version for clients that request none: browsers, scripts, and old machines.
const DEFAULT_VERSION: IgnitionVersion = IgnitionVersion::new(2, 2);
/// The subtype of the media type that requests a version.
const IGNITION_SUBTYPE: &str = "vnd.coreos.ignition+json";

/// One item of the `Accept` header.
struct AcceptItem<'a> {
    subtype: &'a str,
    version: Option<IgnitionVersion>,
    weight: f64,
}

/// The version for a client: the first acceptable one, by preference. A client that requests none
/// but is an Ignition that only reads specification 3 gets the oldest version that all of those
/// read.
///
/// # Errors
/// The client requests a version that does not exist.
pub fn served_version(
    accept: Option<&str>,
    user_agent: Option<&str>,
) -> Result<IgnitionVersion, ServeError> {
    let header = accept.unwrap_or_default();
    let mut items: Vec<AcceptItem<'_>> = header.split(',').filter_map(parse_item).collect();
    items.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let asked = items.into_iter().filter(|item| item.subtype == IGNITION_SUBTYPE);
    match asked.filter_map(|item| item.version).next() {
        Some(version) => nearest_served(&version)
            .ok_or_else(|| ServeError::UnsupportedVersion(truncate_header(header))),
        None if reads_only_spec_3(user_agent.unwrap_or_default()) => Ok(IgnitionVersion::new(3, 1)),
        None => Ok(DEFAULT_VERSION),
    }
}

/// The header is untrusted and may be long, and it is logged.
fn truncate_header(header: &str) -> String {
    header.chars().take(200).collect()
}

fn parse_item(text: &str) -> Option<AcceptItem<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let (_, subtype) = parts.next()?.split_once('/')?;
    let (mut version, mut weight) = (None, None);
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name {
            "version" if version.is_none() => version = IgnitionVersion::parse(value),
            "q" if weight.is_none() => weight = value.parse::<f64>().ok(),
            _ => {}
        }
    }
    Some(AcceptItem { subtype, version, weight: weight.unwrap_or(1.0) })
}

/// The version to serve to a client that reads `asked`.
fn nearest_served(asked: &IgnitionVersion) -> Option<IgnitionVersion> {
    match (asked.major, asked.minor) {
        (2, 2..) => Some(DEFAULT_VERSION),
        (3, minor @ 0..=5) => Some(IgnitionVersion::new(3, minor)),
        // Newer machines read older versions.
        (3, 6..) => Some(IgnitionVersion::MAX),
        _ => None,
    }
}

/// Whether this is Ignition 2.3 or later. All of these send their version in `Accept`, unless a
/// proxy removes the header.
fn reads_only_spec_3(user_agent: &str) -> bool {
    let number = user_agent.strip_prefix("Ignition/").and_then(|rest| rest.split(' ').next());
    number
        .and_then(IgnitionVersion::parse)
        .is_some_and(|number| number.major == 2 && number.minor >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IGNITION: &str = "application/vnd.coreos.ignition+json";

    fn served(accept: &str) -> Option<String> {
        served_version(Some(accept), None).ok().map(|version| version.to_string())
    }

    #[test]
    fn each_version_maps_to_a_served_one() {
        for (asked, expected) in [
            ("2.2.0", Some("2.2.0")),
            ("2.2.0-beta", Some("2.2.0")),
            ("2.4.0", Some("2.2.0")),
            ("2.9.9", Some("2.2.0")),
            ("2.0.0", None),
            ("2.1.0", None),
            ("1.0.0", None),
            ("4.0.0", None),
            ("3.0.0", Some("3.0.0")),
            ("3.1.0", Some("3.1.0")),
            ("3.2.0", Some("3.2.0")),
            ("3.2.5", Some("3.2.0")),
            ("3.3.0", Some("3.3.0")),
            ("3.4.0-experimental", Some("3.4.0")),
            ("3.5.0", Some("3.5.0")),
            ("3.6.0-experimental", Some("3.5.0")),
            ("3.6.0", Some("3.5.0")),
            ("3.100.0", Some("3.5.0")),
            // Not versions, so nothing is requested.
            ("1", Some("2.2.0")),
            ("3.5", Some("2.2.0")),
            ("v3.3.0", Some("2.2.0")),
            ("3.-1.0", Some("2.2.0")),
            ("\"3.2.0\"", Some("2.2.0")),
        ] {
            let found = served(&format!("{IGNITION};version={asked}"));
            assert_eq!(found.as_deref(), expected, "{asked}");
        }
    }

    #[test]
    fn accept_headers_are_ranked() {
        let ignition = |rest: &str| rest.replace('@', IGNITION);
        for (accept, expected) in [
            ("", Some("2.2.0")),
            ("*/*", Some("2.2.0")),
            ("text/html", Some("2.2.0")),
            ("junk", Some("2.2.0")),
            ("@", Some("2.2.0")),
            // Ignition 0.x and 2.x.
            ("@; version=2.4.0, @; version=1; q=0.5, */*; q=0.1", Some("2.2.0")),
            ("@;version=3.3.0, */*;q=0.1", Some("3.3.0")),
            // The item with the highest weight decides, even if another one would do.
            ("@;version=4.0.0, @;version=3.3.0;q=0.5", None),
            ("@;version=4.0.0;q=0.2, @;version=3.3.0;q=0.5", Some("3.3.0")),
            // The first one wins among equals.
            ("@;version=3.1.0, @;version=3.3.0", Some("3.1.0")),
            // The range of weights is not checked.
            ("@;version=3.1.0, @;version=3.3.0;q=7", Some("3.3.0")),
            ("@;version=3.1.0;q=x;q=0.1, @;version=3.3.0;q=0.5", Some("3.3.0")),
            // The first valid item wins.
            ("@;version=x;version=3.2.0;version=3.3.0", Some("3.2.0")),
            // Names are exact.
            ("@;Version=3.3.0", Some("2.2.0")),
            ("@;version =3.3.0", Some("2.2.0")),
            // The main type is ignored.
            ("text/vnd.coreos.ignition+json;version=3.3.0", Some("3.3.0")),
            ("vnd.coreos.ignition+json;version=3.3.0", Some("2.2.0")),
            ("application/json;version=3.3.0", Some("2.2.0")),
        ] {
            assert_eq!(served(&ignition(accept)).as_deref(), expected, "{accept}");
        }
    }

    #[test]
    fn clients_that_request_no_version_get_a_default() {
        for (agent, expected) in [
            (None, "2.2.0"),
            (Some("curl/8"), "2.2.0"),
            (Some("Ignition/0.35.0"), "2.2.0"),
            (Some("Ignition/2.2.0"), "2.2.0"),
            (Some("Ignition/2.3.0"), "3.1.0"),
            (Some("Ignition/2.14.0"), "3.1.0"),
        ] {
            assert_eq!(served_version(None, agent).unwrap().to_string(), expected, "{agent:?}");
            assert_eq!(served_version(Some("*/*"), agent).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn the_error_contains_the_requested_version() {
        let refusal = served_version(Some("a/vnd.coreos.ignition+json;version=1.0.0"), None);
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.status(), 400);
        assert!(refusal.to_string().contains("version=1.0.0"));
    }
}
