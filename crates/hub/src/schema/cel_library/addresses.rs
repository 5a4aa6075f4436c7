//! IP addresses and networks: `cidr("10.0.0.0/8").containsIP("10.1.2.3")`.

use std::any::Any;
use std::net::IpAddr;

use cel::common::types::{CelBool, CelInt, CelString, Type};
use cel::common::value::{StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

static IP: Type = Type::new_unspecified_type("net.IP");
static CIDR: Type = Type::new_unspecified_type("net.CIDR");

/// An IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ip(IpAddr);

/// A network: an address in it, and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cidr(IpAddr, u8);

macro_rules! value_of_type {
    ($name:ident, $type_:ident) => {
        impl Val for $name {
            fn get_type(&self) -> &Type {
                <Self as Val>::cel_type()
            }

            fn cel_type() -> &'static Type {
                &$type_
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>().is_some_and(|other| other == self)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                Box::new(*self)
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    };
}

value_of_type!(Ip, IP);
value_of_type!(Cidr, CIDR);

pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn ip: (CelString) -> Result<Ip>)?;
    cel::add_overload!(env, fn is_ip: (CelString) -> CelBool, name = "isIP")?;
    cel::add_overload!(env, fn is_canonical: (CelString) -> Result<CelBool>, name = "ip.isCanonical")?;
    cel::add_overload!(env, fn ip_text: (Ip) -> CelString, name = "string")?;
    cel::add_member_overload!(env, fn family: (Ip) -> CelInt)?;
    cel::add_member_overload!(env, fn is_unspecified: (Ip) -> CelBool, name = "isUnspecified")?;
    cel::add_member_overload!(env, fn is_loopback: (Ip) -> CelBool, name = "isLoopback")?;
    cel::add_member_overload!(env, fn is_local_multicast: (Ip) -> CelBool,
        name = "isLinkLocalMulticast")?;
    cel::add_member_overload!(env, fn is_local_unicast: (Ip) -> CelBool, name = "isLinkLocalUnicast")?;
    cel::add_member_overload!(env, fn is_global_unicast: (Ip) -> CelBool, name = "isGlobalUnicast")?;
    cel::add_overload!(env, fn cidr: (CelString) -> Result<Cidr>)?;
    cel::add_overload!(env, fn is_cidr: (CelString) -> CelBool, name = "isCIDR")?;
    cel::add_overload!(env, fn cidr_text: (Cidr) -> CelString, name = "string")?;
    cel::add_member_overload!(env, fn contains_ip: (Cidr, Ip) -> CelBool, name = "containsIP")?;
    cel::add_member_overload!(env, fn contains_ip_text: (Cidr, CelString) -> Result<CelBool>,
        name = "containsIP")?;
    cel::add_member_overload!(env, fn contains_cidr: (Cidr, Cidr) -> CelBool, name = "containsCIDR")?;
    cel::add_member_overload!(env, fn contains_cidr_text: (Cidr, CelString) -> Result<CelBool>,
        name = "containsCIDR")?;
    cel::add_member_overload!(env, fn cidr_ip: (Cidr) -> Ip, name = "ip")?;
    cel::add_member_overload!(env, fn prefix_length: (Cidr) -> CelInt, name = "prefixLength")?;
    cel::add_member_overload!(env, fn masked: (Cidr) -> Cidr)
}

/// Parses an address as Kubernetes accepts it: without a zone, and not an IPv4 address in the form of IPv6.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err("IPv4-mapped IPv6 address is not allowed".to_owned())
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!("IP Address \"{text}\" parse error: unable to parse IP")),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let wrong = || format!("network address parse error during conversion from string: \"{text}\"");
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address = parse_ip(address).map_err(|_| wrong())?;
    let is_plain = length == "0" || !length.starts_with(['0', '+']);
    let length: u8 = length.parse().ok().filter(|_| is_plain).ok_or_else(wrong)?;
    if length > bits(address) {
        return Err(wrong());
    }
    Ok(Cidr(address, length))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address as a number, and without what follows the prefix.
fn network(address: IpAddr, length: u8) -> u128 {
    let (number, bits) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let rest = bits - u32::from(length);
    number.checked_shr(rest).unwrap_or(0).checked_shl(rest).unwrap_or(0)
}

fn failed<T>(function: &str, parsed: Result<T, String>) -> Result<T, ExecutionError> {
    parsed.map_err(|why| ExecutionError::function_error(function, why))
}

fn ip(text: &CelString<'_>) -> Result<Ip, ExecutionError> {
    failed("ip", parse_ip(text.inner())).map(Ip)
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse_ip(text.inner()).is_ok())
}

fn is_canonical(text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let address = failed("isCanonical", parse_ip(text.inner()))?;
    Ok(CelBool::from(address.to_string() == text.inner()))
}

fn ip_text(ip: &Ip) -> CelString<'static> {
    CelString::from(ip.0.to_string())
}

fn family(ip: &Ip) -> CelInt {
    CelInt::from(if ip.0.is_ipv4() { 4 } else { 6 })
}

fn is_unspecified(ip: &Ip) -> CelBool {
    CelBool::from(ip.0.is_unspecified())
}

fn is_loopback(ip: &Ip) -> CelBool {
    CelBool::from(ip.0.is_loopback())
}

fn is_local_multicast(ip: &Ip) -> CelBool {
    CelBool::from(match ip.0 {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_local_unicast(ip: &Ip) -> CelBool {
    CelBool::from(is_link_local(ip.0))
}

fn is_global_unicast(ip: &Ip) -> CelBool {
    let address = ip.0;
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    CelBool::from(
        !(address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || is_link_local(address)
            || is_broadcast),
    )
}

fn cidr(text: &CelString<'_>) -> Result<Cidr, ExecutionError> {
    failed("cidr", parse_cidr(text.inner()))
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse_cidr(text.inner()).is_ok())
}

fn cidr_text(cidr: &Cidr) -> CelString<'static> {
    CelString::from(format!("{}/{}", cidr.0, cidr.1))
}

fn holds(outer: &Cidr, address: IpAddr, length: u8) -> bool {
    outer.0.is_ipv4() == address.is_ipv4()
        && length >= outer.1
        && network(outer.0, outer.1) == network(address, outer.1)
}

fn contains_ip(cidr: &Cidr, ip: &Ip) -> CelBool {
    CelBool::from(holds(cidr, ip.0, bits(ip.0)))
}

fn contains_ip_text(cidr: &Cidr, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let address = failed("containsIP", parse_ip(text.inner()))?;
    Ok(CelBool::from(holds(cidr, address, bits(address))))
}

fn contains_cidr(outer: &Cidr, inner: &Cidr) -> CelBool {
    CelBool::from(holds(outer, inner.0, inner.1))
}

fn contains_cidr_text(outer: &Cidr, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let inner = failed("containsCIDR", parse_cidr(text.inner()))?;
    Ok(CelBool::from(holds(outer, inner.0, inner.1)))
}

fn cidr_ip(cidr: &Cidr) -> Ip {
    Ip(cidr.0)
}

fn prefix_length(cidr: &Cidr) -> CelInt {
    CelInt::from(i64::from(cidr.1))
}

fn masked(cidr: &Cidr) -> Cidr {
    let number = network(cidr.0, cidr.1);
    let address = match cidr.0 {
        IpAddr::V4(_) => IpAddr::from(u32::try_from(number).unwrap_or_default().to_be_bytes()),
        IpAddr::V6(_) => IpAddr::from(number.to_be_bytes()),
    };
    Cidr(address, cidr.1)
}
