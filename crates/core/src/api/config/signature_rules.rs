//! The validation rules of image signature policies, with their exact messages.

use serde_json::{Value, json};

use crate::api::rules::rule;

/// One scope.
pub(super) fn scope() -> Value {
    json!({
        "maxLength": 512,
        "x-kubernetes-validations": [
            rule(
                "size(self.split('/')[0].split('.')) == 1 ? self.split('/')[0].split('.')[0].split(':')[0] == 'localhost' : true",
                "invalid image scope format, scope must contain a fully qualified domain name or 'localhost'",
            ),
            rule(
                r"self.contains('*') ? self.matches('^\\*(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+$') : true",
                "invalid image scope with wildcard, a wildcard can only be at the start of the domain and is only supported for subdomain matching, not path matching",
            ),
            rule(
                r"!self.contains('*') ? self.matches('^((((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+(?::[0-9]+)?)|(localhost(?::[0-9]+)?))(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?)(?::([\\w][\\w.-]{0,127}))?(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*[:][[:xdigit:]]{32,}))?$') : true",
                "invalid repository namespace or image specification in the image scope",
            ),
        ],
    })
}

/// A field that must be set exactly if the policy type requires it.
pub(super) fn root_of_trust() -> Vec<Value> {
    [("PKI", "pki"), ("PublicKey", "publicKey"), ("FulcioCAWithRekor", "fulcioCAWithRekor")]
        .iter()
        .map(|(type_, member)| {
            rule(
                &format!(
                    "has(self.policyType) && self.policyType == '{type_}' ? has(self.{member}) : !has(self.{member})"
                ),
                &format!("{member} is required when policyType is {type_}, and forbidden otherwise"),
            )
        })
        .collect()
}

/// A field that must be set exactly if the match policy requires it.
pub(super) fn signed_identity() -> Vec<Value> {
    [("ExactRepository", "exactRepository"), ("RemapIdentity", "remapIdentity")]
        .iter()
        .map(|(policy, member)| {
            rule(
                &format!(
                    "(has(self.matchPolicy) && self.matchPolicy == '{policy}') ? has(self.{member}) : !has(self.{member})"
                ),
                &format!(
                    "{member} is required when matchPolicy is {policy}, and forbidden otherwise"
                ),
            )
        })
        .collect()
}

/// Text between PEM markers.
pub(super) fn pem(field: &str, mark: &str) -> Vec<Value> {
    vec![
        rule(
            &format!("string(self).startsWith('-----BEGIN {mark}-----')"),
            &format!("the {field} must start with base64 encoding of '-----BEGIN {mark}-----'."),
        ),
        rule(
            &format!(
                r"string(self).endsWith('-----END {mark}-----\n') || string(self).endsWith('-----END {mark}-----')"
            ),
            &format!("the {field} must end with base64 encoding of '-----END {mark}-----'."),
        ),
    ]
}

/// One or more certificates as PEM.
pub(super) fn certificates(field: &str) -> Vec<Value> {
    let mut rules = pem(field, "CERTIFICATE");
    rules.push(rule(
        "string(self).findAll('-----BEGIN CERTIFICATE-----').size() == string(self).findAll('-----END CERTIFICATE-----').size()",
        &format!(
            "{field} must be base64 encoding of valid PEM format data contain the same number of '-----BEGIN CERTIFICATE-----' and '-----END CERTIFICATE-----' markers."
        ),
    ));
    rules
}

/// A URL.
pub(super) fn issuer() -> Vec<Value> {
    vec![rule("isURL(self)", "oidcIssuer must be a valid URL")]
}

/// An email address.
pub(super) fn email() -> Vec<Value> {
    vec![rule(r"self.matches('^\\S+@\\S+$')", "invalid email address")]
}

/// A host name, or a wildcard for all hosts below a domain.
pub(super) fn hostname() -> Vec<Value> {
    vec![rule(
        r"self.matches('^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "hostname must be a valid dns 1123 subdomain name, optionally prefixed by '*.'. It must consist only of lowercase alphanumeric characters, hyphens, periods and the optional preceding asterisk.",
    )]
}

/// A certificate must name an identity.
pub(super) fn certificate_subject() -> Vec<Value> {
    vec![rule(
        "has(self.email) || has(self.hostname)",
        "at least one of email or hostname must be set in pkiCertificateSubject",
    )]
}

/// A repository, or a prefix of one.
pub(super) fn repository() -> Vec<Value> {
    vec![
        rule(
            r"self.matches('.*:([\\w][\\w.-]{0,127})$')? self.matches('^(localhost:[0-9]+)$'): true",
            "invalid repository or prefix in the signedIdentity, should not include the tag or digest",
        ),
        rule(
            r"self.matches('^(((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+(?::[0-9]+)?)|(localhost(?::[0-9]+)?))(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?$')",
            "invalid repository or prefix in the signedIdentity. The repository or prefix must starts with 'localhost' or a valid '.' separated domain. If contains registry paths, the path component names must start with at least one letter or number, with following parts able to be separated by one period, one or two underscore and multiple dashes.",
        ),
    ]
}
