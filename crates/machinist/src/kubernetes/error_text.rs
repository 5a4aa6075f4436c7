//! Errors of the API server, in the words that people can act on.

use std::error::Error;

/// The status code of a request without the right to make it.
const FORBIDDEN: u16 = 403;

/// What went wrong: the API server's own message where it answered, else every cause in a row.
///
/// For a missing right the message names verb, resource and API group; the remedy is added.
#[must_use]
pub(crate) fn error_text(error: &(dyn Error + 'static)) -> String {
    if let Some(status) = api_status(error) {
        let message = if status.message.is_empty() {
            format!("the API server answered {}", status.code)
        } else {
            status.message.clone()
        };
        return match status.code {
            FORBIDDEN => format!("{message}; grant this verb in the role of the user"),
            _ => message,
        };
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        // Many errors repeat their cause in their own text.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// The API server's refusal, wherever it is in the chain of causes.
fn api_status<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a kube::core::Status> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() {
            return Some(status);
        }
        cause = error.source();
    }
    None
}

/// The status code of the API server's refusal, wherever it is in the chain of causes.
#[must_use]
pub(crate) fn refusal_code(error: &(dyn Error + 'static)) -> Option<u16> {
    api_status(error).map(|status| status.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher;

    fn refusal(code: u16, message: &str) -> kube::Error {
        let status = serde_json::json!({"status": "Failure", "code": code, "message": message});
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_missing_right_is_named_with_verb_resource_and_group() {
        let message = "nodes is forbidden: User \"a\" cannot list resource \"nodes\" in API group \"\" at the cluster scope";
        let error = watcher::Error::InitialListFailed(refusal(403, message));
        assert_eq!(
            error_text(&error),
            format!("{message}; grant this verb in the role of the user")
        );
        assert_eq!(refusal_code(&error), Some(403));
    }

    #[test]
    fn other_errors_name_every_cause_once() {
        assert_eq!(error_text(&refusal(500, "etcd is away")), "etcd is away");
        assert_eq!(error_text(&refusal(502, "")), "the API server answered 502");
        let io = std::io::Error::other("connection refused");
        assert_eq!(
            error_text(&kube::Error::Service(io.into())),
            "ServiceError: connection refused"
        );
        assert_eq!(refusal_code(&std::io::Error::other("x")), None);
    }
}
