//! The index of an etcd member in a request. Configs that all members share contain it as a template variable
//! (`ignition::etcd_index`).

use super::error::ServeError;
use super::route::query_parameter;
use crate::api::names::object;
use crate::ignition::etcd_index::VARIABLE_NAME;

/// Whether machines of a pool run etcd.
#[must_use]
pub fn is_control_plane(pool: &str) -> bool {
    [object::POOL_MASTER, object::POOL_ARBITER].contains(&pool)
}

/// The valid index in a request, if there is one.
///
/// # Errors
/// The index is invalid.
pub fn requested_index(pool: &str, query: Option<&str>) -> Result<Option<u16>, ServeError> {
    let Some(text) = query_parameter(query, VARIABLE_NAME).filter(|_| is_control_plane(pool))
    else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(None);
    }
    let is_number = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| ServeError::InvalidEtcdIndex(text.chars().take(40).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_request_is_validated() {
        let asked =
            |pool: &str, query: &str| requested_index(pool, Some(query)).map_err(|it| it.status());
        for (query, expected) in [
            ("etcd_index=0", Ok(Some(0))),
            ("etcd_index=12", Ok(Some(12))),
            ("etcd_index=", Ok(None)),
            ("other=1", Ok(None)),
            ("etcd_index=a", Err(400)),
            ("etcd_index=-1", Err(400)),
            ("etcd_index=%2B1", Err(400)),
            ("etcd_index=1.5", Err(400)),
            ("etcd_index=10000", Err(400)),
            ("etcd_index=1%0AExecStart%3D", Err(400)),
        ] {
            assert_eq!(asked("master", query), expected, "{query}");
            assert_eq!(asked("arbiter", query), expected, "{query}");
            // Other machines run no etcd and ignore the query.
            assert_eq!(asked("worker", query), Ok(None), "{query}");
        }
    }
}
