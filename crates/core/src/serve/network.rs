//! IP networks such as `10.0.0.0/8` and `fd00::/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network; a single address is one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    prefix_length: u8,
}

impl IpNetwork {
    /// Whether the network contains an address. An IPv4-mapped IPv6 address counts as an IPv4
    /// address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_length)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_length)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

impl FromStr for IpNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a network: use 10.0.0.0/8, fd00::/8 or an address");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| bad())?;
        if bits > most {
            return Err(bad());
        }
        Ok(Self { address, prefix_length: bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_addresses() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("1.2.3.4", "1.2.3.4", true),
            ("1.2.3.4", "1.2.3.5", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
        ] {
            let found: IpNetwork = network.parse().unwrap();
            assert_eq!(found.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
    }

    #[test]
    fn invalid_networks_are_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(text.parse::<IpNetwork>().is_err(), "{text}");
        }
    }
}
