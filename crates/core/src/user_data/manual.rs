//! For starting a machine by hand: kernel arguments for Ignition, and a script for hosts without
//! Ignition.

use super::ServerEndpoint;
use super::pointer::with_query;

/// The Ignition version for hosts without Ignition: the newest one that Machinist supports.
const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.5.0";

/// The kernel arguments that make Ignition fetch the config without a pointer config. They cannot
/// contain a CA, so the boot image must trust the server's certificate, or the URL must be one
/// without TLS.
#[must_use]
pub fn kernel_arguments(endpoint: &ServerEndpoint, pool: &str) -> String {
    let url = with_query(endpoint.config_url(pool), endpoint);
    format!("ignition.firstboot ignition.platform.id=metal ignition.config.url={url}")
}

/// A shell script that applies the pool's config to a host, as cloud-init user data or by hand. It
/// waits for the server, and changes nothing before it has the complete config.
#[must_use]
pub fn script(endpoint: &ServerEndpoint, pool: &str) -> String {
    let url = endpoint.config_url(pool);
    let mut script = format!(
        "#!/bin/sh\n\
         # Brings this machine to the config of the pool {pool}. Run it once, as root: as user data of cloud-init, or by hand.\n\
         set -eu\n\
         umask 077\n\
         command -v machinist >/dev/null || {{ echo 'install machinist first' >&2; exit 1; }}\n\
         dir=$(mktemp -d)\n\
         trap 'rm -rf \"$dir\"' EXIT\n\
         echo 'Accept: {ACCEPT}' >\"$dir/headers\"\n"
    );
    if let Some(token) = &endpoint.token {
        // In a file, because everybody can read the arguments of a process.
        script += &format!("echo 'Authorization: Bearer {token}' >>\"$dir/headers\"\n");
    }
    let mut trust = "";
    if let Some(authority) = &endpoint.ca_bundle {
        script += &format!("cat >\"$dir/ca.crt\" <<'END'\n{}\nEND\n", authority.trim_end());
        trust = "--cacert \"$dir/ca.crt\" ";
    }
    script += &format!(
        "curl --fail --silent --show-error --retry 60 --retry-delay 5 --retry-connrefused {trust}\\\n  \
         --header @\"$dir/headers\" --output \"$dir/config.json\" '{url}'\n\
         machinist once --root / -f \"$dir/config.json\"\n"
    );
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> ServerEndpoint {
        ServerEndpoint {
            url: "https://host:22623/".to_owned(),
            ca_bundle: Some("PEM\n".to_owned()),
            token: Some("id.secret".to_owned()),
        }
    }

    #[test]
    fn the_kernel_arguments_contain_url_and_token() {
        assert_eq!(
            kernel_arguments(&endpoint(), "worker"),
            "ignition.firstboot ignition.platform.id=metal \
             ignition.config.url=https://host:22623/config/worker?token=id.secret"
        );
    }

    #[test]
    fn the_script_hides_the_token_from_the_process_list() {
        let script = script(&endpoint(), "worker");
        let curl = script.lines().skip_while(|line| !line.starts_with("curl")).take(2);
        let curl = curl.collect::<String>();
        assert!(curl.contains("--cacert") && curl.contains("'https://host:22623/config/worker'"));
        assert!(script.contains("id.secret") && !curl.contains("secret"), "{script}");
        assert!(script.contains("<<'END'\nPEM\nEND\n"), "{script}");
        let plain = ServerEndpoint { ca_bundle: None, token: None, ..endpoint() };
        let plain = super::script(&plain, "worker");
        assert!(!plain.contains("ca.crt") && !plain.contains("Bearer"), "{plain}");
    }
}
