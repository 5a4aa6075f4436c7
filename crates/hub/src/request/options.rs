//! Parses the query options of a request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::percent_decode;
use crate::schema::FieldError;

/// How unknown fields are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, with a warning in the response.
    #[default]
    Warn,
    /// Rejected.
    Strict,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionPropagation {
    /// Deleted after it.
    #[default]
    Background,
    /// Deleted before it.
    Foreground,
    /// Kept, without an owner.
    Orphan,
}

impl DeletionPropagation {
    /// Parses a `propagationPolicy`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            "Orphan" => Some(Self::Orphan),
            _ => None,
        }
    }
}

/// How a `resourceVersion` is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// Exactly that revision.
    Exact,
    /// That revision or any later one.
    NotOlderThan,
}

/// The options of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryOptions {
    /// `labelSelector`, unparsed.
    pub label_selector: String,
    /// `fieldSelector`, unparsed.
    pub field_selector: String,
    /// `limit`; 0 means no limit.
    pub limit: usize,
    /// `continue`, unparsed.
    pub continue_token: String,
    /// `resourceVersion`, unparsed.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// `watch`.
    pub watch: bool,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub initial_events: Option<bool>,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<u64>,
    /// `dryRun=All`.
    pub dry_run: bool,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `fieldManager`.
    pub field_manager: String,
    /// `force`, of an apply patch.
    pub force: Option<bool>,
    /// `propagationPolicy`.
    pub propagation: Option<DeletionPropagation>,
    /// `includeObject`, unparsed: what the rows of a table include.
    pub include_object: String,
    /// `verbose`.
    pub verbose: bool,
    /// `pretty`.
    pub pretty: bool,
}

/// Why a query is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QueryError {
    /// It is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// An option has an invalid value: 422.
    #[error("{0}")]
    Invalid(FieldError),
}

/// Parses a query string.
///
/// # Errors
/// An option has an invalid value.
pub fn parse_query(query: &str) -> Result<QueryOptions, QueryError> {
    let query = parse_pairs(query)?;
    let get = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let mut options = QueryOptions {
        label_selector: get("labelSelector").to_owned(),
        field_selector: get("fieldSelector").to_owned(),
        continue_token: get("continue").to_owned(),
        resource_version: get("resourceVersion").to_owned(),
        watch: parse_flag(&query, "watch")?,
        bookmarks: parse_flag(&query, "allowWatchBookmarks")?,
        verbose: query.contains_key("verbose"),
        pretty: parse_flag(&query, "pretty").unwrap_or_default(),
        include_object: get("includeObject").to_owned(),
        field_manager: get("fieldManager").to_owned(),
        ..QueryOptions::default()
    };
    options.limit = parse_number(&query, "limit")?.map_or(0, |n| usize::try_from(n).unwrap_or(0));
    options.timeout_seconds = parse_number(&query, "timeoutSeconds")?;
    if query.contains_key("sendInitialEvents") {
        options.initial_events = Some(parse_flag(&query, "sendInitialEvents")?);
    }
    if query.contains_key("force") {
        options.force = Some(parse_flag(&query, "force")?);
    }
    options.version_match = match get("resourceVersionMatch") {
        "" => None,
        "Exact" => Some(VersionMatch::Exact),
        "NotOlderThan" => Some(VersionMatch::NotOlderThan),
        other => {
            return Err(unsupported_value(
                "resourceVersionMatch",
                other,
                &["Exact", "NotOlderThan", ""],
            ));
        }
    };
    options.dry_run = match get("dryRun") {
        "" => false,
        "All" => true,
        other => {
            return Err(unsupported_value("dryRun", json!([other]), &["All"]));
        }
    };
    options.field_validation = match get("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            return Err(unsupported_value(
                "fieldValidation",
                other,
                &["", "Ignore", "Strict", "Warn"],
            ));
        }
    };
    options.propagation = parse_propagation(&query)?;
    Ok(options)
}

fn unsupported_value(field: &str, value: impl Into<Value>, supported: &[&str]) -> QueryError {
    QueryError::Invalid(FieldError::not_supported(field, value, supported))
}

fn parse_propagation(
    query: &BTreeMap<String, String>,
) -> Result<Option<DeletionPropagation>, QueryError> {
    if let Some(text) = query.get("propagationPolicy").filter(|text| !text.is_empty()) {
        let policy = DeletionPropagation::parse(text).ok_or_else(|| {
            unsupported_value(
                "propagationPolicy",
                text.as_str(),
                &["Background", "Foreground", "Orphan"],
            )
        })?;
        return Ok(Some(policy));
    }
    Ok(parse_flag(query, "orphanDependents")?.then_some(DeletionPropagation::Orphan))
}

fn parse_pairs(query: &str) -> Result<BTreeMap<String, String>, QueryError> {
    let mut pairs = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text| {
            percent_decode(text, true).ok_or_else(|| {
                QueryError::Malformed(format!("invalid URL escape in the query: {pair:?}"))
            })
        };
        pairs.entry(decode(name)?).or_insert(decode(value)?);
    }
    Ok(pairs)
}

/// A flag is true unless it is `false` or `0`, as in kube-apiserver.
fn parse_flag(query: &BTreeMap<String, String>, name: &str) -> Result<bool, QueryError> {
    Ok(match query.get(name).map(String::as_str) {
        None | Some("" | "0" | "false" | "False" | "FALSE" | "f" | "F") => false,
        Some(_) => true,
    })
}

fn parse_number(query: &BTreeMap<String, String>, name: &str) -> Result<Option<u64>, QueryError> {
    match query.get(name).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Ok(number) => Ok(Some(u64::try_from(number).unwrap_or(0))),
            Err(_) => Err(QueryError::Malformed(format!(
                "strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let found = parse_query(
            "labelSelector=a%3Db&limit=5&watch=1&allowWatchBookmarks=true&timeoutSeconds=3&dryRun=All\
             &fieldValidation=Strict&propagationPolicy=Orphan&sendInitialEvents=false",
        )
        .unwrap();
        assert_eq!(found.label_selector, "a=b");
        assert_eq!((found.limit, found.timeout_seconds), (5, Some(3)));
        assert!(found.watch && found.bookmarks && found.dry_run);
        assert_eq!(found.field_validation, FieldValidation::Strict);
        assert_eq!(found.propagation, Some(DeletionPropagation::Orphan));
        assert_eq!(found.initial_events, Some(false));
        assert_eq!(parse_query("").unwrap(), QueryOptions::default());
        assert_eq!(parse_query("limit=-1&watch=false").unwrap(), QueryOptions::default());
    }

    #[test]
    fn invalid_queries() {
        for query in [
            "limit=x",
            "dryRun=Some",
            "fieldValidation=x",
            "resourceVersionMatch=x",
            "propagationPolicy=x",
            "a=%zz",
        ] {
            assert!(parse_query(query).is_err(), "{query}");
        }
    }
}
