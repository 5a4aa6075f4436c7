//! Validates names, label keys and label values, with the texts of Kubernetes.

/// Maximum length of a label value and of the name part of a key.
const MAX_LABEL_LENGTH: usize = 63;
/// Maximum length of a subdomain.
const MAX_SUBDOMAIN_LENGTH: usize = 253;

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
    used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or \
    '-', start with an alphabetic character, and end with an alphanumeric character (e.g. \
    'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Returns the errors of a label key.
#[must_use]
pub fn validate_qualified_name(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        ["", name] => {
            wrong.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            wrong.extend(
                validate_subdomain(prefix).iter().map(|text| format!("prefix part {text}")),
            );
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL_LENGTH {
        wrong.push(format!("name part {}", too_long(MAX_LABEL_LENGTH)));
    }
    if !is_word(name) {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

/// Returns the errors of a label value.
#[must_use]
pub fn validate_label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > MAX_LABEL_LENGTH {
        wrong.push(too_long(MAX_LABEL_LENGTH));
    }
    if !value.is_empty() && !is_word(value) {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// Returns the errors of a DNS subdomain, the syntax of most object names.
#[must_use]
pub fn validate_subdomain(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > MAX_SUBDOMAIN_LENGTH {
        wrong.push(too_long(MAX_SUBDOMAIN_LENGTH));
    }
    if !value.split('.').all(is_dns_label) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

/// Returns the errors of a DNS label (RFC 1123), the syntax of namespace names.
#[must_use]
pub fn validate_dns_label(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > MAX_LABEL_LENGTH {
        wrong.push(too_long(MAX_LABEL_LENGTH));
    }
    if !is_dns_label(value) {
        let dots = value.split('.').all(is_dns_label);
        wrong.push(if dots { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    wrong
}

/// Returns the errors of a DNS label (RFC 1035), which starts with a letter.
#[must_use]
pub fn validate_dns_1035_label(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > MAX_LABEL_LENGTH {
        wrong.push(too_long(MAX_LABEL_LENGTH));
    }
    if !is_dns_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        wrong.push(LABEL_1035.to_owned());
    }
    wrong
}

/// Returns the errors of a name that is only a segment of a path, as those of roles. Unlike in Kubernetes its length is
/// limited, and it has no control characters: it is a part of keys, messages and logs.
#[must_use]
pub fn validate_path_segment(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    for illegal in ['/', '%'] {
        if value.contains(illegal) {
            wrong.push(format!("may not contain '{illegal}'"));
        }
    }
    if value.len() > MAX_SUBDOMAIN_LENGTH {
        wrong.push(too_long(MAX_SUBDOMAIN_LENGTH));
    }
    if value.chars().any(|c| c.is_control() || c == '\\') {
        wrong.push("may not contain control characters or '\\'".to_owned());
    }
    wrong
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Letters and digits at both ends; `-`, `_` and `.` in between.
fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.into_iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_dns_label(text: &str) -> bool {
    let lower = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.into_iter().all(|end| end.is_some_and(lower))
        && bytes.iter().all(|b| lower(b) || *b == b'-')
}
