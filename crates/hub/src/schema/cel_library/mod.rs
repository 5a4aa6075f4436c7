//! Kubernetes' libraries for CEL rules: quantities, IP addresses, URLs, named formats, lists and sets.
//!
//! The functions and their meaning are those of `k8s.io/apiserver/pkg/cel/library`.

mod addresses;
mod collections;
mod named_format;
mod quantity;
mod url;

use cel::{DeclarationError, Env};

/// The functions of all libraries, as rules call them: a call of an unknown function is refused when a rule is compiled.
pub(super) const FUNCTIONS: &[&str] = &[
    "quantity",
    "isQuantity",
    "sign",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "asApproximateFloat",
    "asInteger",
    "isInteger",
    "add",
    "sub",
    "ip",
    "isIP",
    "isCanonical",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "cidr",
    "isCIDR",
    "containsIP",
    "containsCIDR",
    "prefixLength",
    "masked",
    "url",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    "named",
    "validate",
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
    "isSorted",
    "sum",
    "min",
    "max",
    "equivalent",
    "intersects",
    "flatten",
    "slice",
    "range",
    "sortBy",
    "quote",
    "of",
    "none",
    "ofNonZeroValue",
];

/// Adds all libraries.
pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    quantity::register(env)?;
    addresses::register(env)?;
    url::register(env)?;
    named_format::register(env)?;
    collections::register(env)
}

#[cfg(test)]
mod tests;
